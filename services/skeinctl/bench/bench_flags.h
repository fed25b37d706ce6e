// Flags of `skeinctl bench`, and the plan made from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/flags/flags.h"
#include "services/skeinctl/bench/dataset.h"
#include "services/skeinctl/bench/report.h"
#include "services/skeinctl/bench/runner.h"
#include "services/skeinctl/bench/statistics.h"
#include "services/skeinctl/bench/target.h"
#include "services/tls/security.h"

namespace skein::services::bench {

struct BenchFlags {
  std::string url;  // empty: the cluster on this machine
  std::string model;
  std::string api_key;
  std::string tls_dir;
  std::string endpoint = "completions";
  bool streaming = true;
  bool ignore_eos = true;

  double rate = 0;
  std::string arrivals = "poisson";
  int64_t concurrency = 0;
  int64_t requests = 0;
  double duration_s = 0;
  int64_t warmup_requests = 0;
  double request_timeout_s = 600;
  int64_t seed = 1;

  std::string sharegpt;
  std::string trace;
  std::string prompts;
  double speedup = 1;
  int64_t block_tokens = 512;
  int64_t input_tokens = 512;
  double input_tokens_stddev = 0;
  int64_t output_tokens = 128;
  double output_tokens_stddev = 0;

  std::string goodput;
  std::string format = "table";
  std::string out;
  std::string records_out;

  void Register(FlagSet* set);

 private:
  void RegisterServer(FlagSet* set);
  void RegisterLoad(FlagSet* set);
  void RegisterData(FlagSet* set);
  void RegisterOutput(FlagSet* set);
};

// Everything a run needs; made before anything is sent.
struct BenchPlan {
  Target target;
  std::vector<LoadRequest> warmup;
  std::vector<LoadRequest> requests;
  RunOptions options;
  RunDescription description;
  tls::Security security;  // of https
};

// INVALID_ARGUMENT or NOT_FOUND names the flag and the value.
absl::StatusOr<BenchPlan> MakePlan(const BenchFlags& flags);

}  // namespace skein::services::bench
