makeSwitches();
makeCharts();
makeBars();
makeMaps();
makeScores();
makeClients();
document.documentElement.dataset.ready = "true";
