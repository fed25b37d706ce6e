// Writes each dashboard's JSON into the folder that is the only argument. Called by deploy/grafana/generate.
import fs from 'node:fs';
import path from 'node:path';
import overview from './overview.mjs';
import disaggregation from './disaggregation.mjs';
import planner from './planner.mjs';
import instances from './instances.mjs';
import formations from './formations.mjs';
import failover from './failover.mjs';
import offline from './offline.mjs';

const folder = process.argv[2];
for (const [name, board] of Object.entries({ overview, disaggregation, planner, instances, formations, failover, offline })) {
  fs.writeFileSync(path.join(folder, `skein_${name}.json`), JSON.stringify(board, null, 1) + '\n');
}
