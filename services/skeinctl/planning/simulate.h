// skeinctl simulate: simulates a cluster before it is bought.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/simulator/simulator.h"
#include "services/skeinctl/planning/aggregated.h"
#include "services/skeinctl/planning/decode_formations.h"
#include "services/skeinctl/planning/offline.h"
#include "services/skeinctl/planning/sim_inputs.h"

namespace skein::services {

struct SimulateFlags {
  SimFlags sim;
  std::string policies = "tetris,rolling,single,greedy,fixed8,fixed16";
  std::string improvement_rate = "auto";
  int64_t decode_instances = 0;
  int64_t decode_blocks = 0;
  int64_t block_tokens = 16;
  double decode_step_us = 0;
  double decode_sequence_us = scheduler::DecodeOptions().step_per_sequence_s * 1e6;
  double decode_kv_token_us = scheduler::DecodeOptions().step_per_kv_token_s * 1e6;
  DecodeFormationFlags formations;
  int64_t seeds = 1;
  std::string out;
  std::string chunks;
  std::string format = "table";
  AggregatedFlags aggregated;
  OfflineFlags offline;

  void Register(FlagSet* set);
};

// Exit code: 0; 1 when --out cannot be written; 2 for wrong input, with the flag named on stderr.
int RunSimulate(const SimulateFlags& flags);

struct SimulationRow {
  std::string policy;
  double rate = 0;  // requested, or as recorded
  scheduler::SimulationResult result;
  int64_t seed = 0;  // of the requests

  struct Chunk {
    size_t number = 0;  // number of its request, from 0
    scheduler::SimRequest request;
    scheduler::ChunkPlan chunk;
  };
  std::vector<Chunk> chunks;  // by decided start; only if requested
  std::string formation;      // of its decode instances; empty: without groups
};

// Pure: a table with units and a legend for people, one JSON object per line for programs, CSV with
// a header.
std::string SimulationTable(const std::vector<SimulationRow>& rows);
std::string SimulationJsonLines(const std::vector<SimulationRow>& rows);
std::string SimulationCsv(const std::vector<SimulationRow>& rows);
// One line per chunk; its instances are separated by spaces.
std::string ChunksCsv(const std::vector<SimulationRow>& rows);
// One line per request of rows with a formation. A time that a request does not have is empty.
std::string DecodeCsv(const std::vector<SimulationRow>& rows);

// Figures like the paper's 8 (percentiles over rate; here one figure for the first token and one
// for later tokens), 9 (TTFT distribution at the highest rate) and 13 (slowdown without chunks;
// empty without both tetris and single). `subtitle` describes the simulation.
std::string TtftFigure(const std::vector<SimulationRow>& rows, const std::string& subtitle);
std::string TbtFigure(const std::vector<SimulationRow>& rows, const std::string& subtitle);
std::string DistributionFigure(const std::vector<SimulationRow>& rows, const std::string& subtitle);
std::string ChunkingFigure(const std::vector<SimulationRow>& rows, const std::string& subtitle);

}  // namespace skein::services
