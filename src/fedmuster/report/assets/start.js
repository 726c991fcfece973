makeSwitches();
makeCharts();
makeJobs();
makeNetwork();
makeBars();
makeMaps();
makeScores();
makeClients();
document.documentElement.dataset.ready = "true";
