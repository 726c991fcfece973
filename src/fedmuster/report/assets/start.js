makeSwitches();
makeCharts();
makeBars();
makeMaps();
makeClients();
document.documentElement.dataset.ready = "true";
