makeSwitches();
makeCharts();
makeNetwork();
makeBars();
makeMaps();
makeScores();
makeClients();
document.documentElement.dataset.ready = "true";
