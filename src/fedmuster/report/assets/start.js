makeSwitches();
makeCharts();
makeBars();
makeMaps();
makeOpinions();
makeClients();
document.documentElement.dataset.ready = "true";
