// Shared by `skeinctl simulate` and `skeinctl profile-rate`: flags for the cluster and the
// workload, and the inputs made from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulator/rate_profiler.h"
#include "scheduler/simulator/workload.h"
#include "services/codec/profile_json.h"
#include "services/flags/flags.h"

namespace skein::services {

struct SimFlags {
  std::string profile = "llama3-8b-a100";
  int64_t instances = 16;
  int64_t node_size = 0;  // 0: as many as have eight devices
  std::string prefill_tp = "auto";
  std::string trace = "short";
  std::string rate;
  int64_t requests = 0;
  int64_t burst = 1;
  int64_t seed = 1;

  void Register(FlagSet* flags);
};

class SimInputs {
 public:
  // INVALID_ARGUMENT or NOT_FOUND names the flag.
  static absl::StatusOr<SimInputs> Load(const SimFlags& flags);

  const Profile& profile() const { return profile_; }
  const scheduler::LatencyModel& model() const { return *profile_.latency; }
  const scheduler::Cluster& cluster() const { return cluster_; }
  // A line for people about a --prefill-tp of which the profile does not have all times, or empty.
  const std::string& warning() const { return warning_; }
  // The requested rates, or DefaultRates; nullopt: a recorded trace unchanged.
  const std::vector<double>& rates() const { return rates_; }

  // The requests at `rate`, or as recorded if it is nullopt. `offset` is added to the seed.
  absl::StatusOr<std::vector<scheduler::SimRequest>> Workload(std::optional<double> rate,
                                                              int64_t offset = 0) const;

  // Poisson arrivals with the trace's lengths and another seed than Workload's, so that a table is
  // not tuned on the requests it is tested with.
  scheduler::WorkloadOfLoad TuningWorkload() const;
  // The loads for which tables are tuned before a simulation at `rate`.
  std::vector<double> TuningLoads(std::optional<double> rate) const;

 private:
  explicit SimInputs(Profile profile) : profile_(std::move(profile)) {}

  Profile profile_;
  scheduler::Cluster cluster_;
  std::string warning_;
  std::vector<double> rates_;
  std::optional<scheduler::LengthDistribution> lengths_;
  std::vector<scheduler::SimRequest> recorded_;  // if there are no lengths_
  scheduler::ArrivalOptions arrivals_;
};

// A quarter, a half and three quarters of the cluster's prefill capacity, with two digits each. The
// capacity is the number of instances divided by the instance-seconds of a mean prompt at the
// cheapest SP size. REQUIRES a cluster at least as large as the model's smallest SP size.
std::vector<double> DefaultRates(const scheduler::LengthDistribution& lengths,
                                 const scheduler::LatencyModel& model,
                                 const scheduler::Cluster& cluster);

// "a,b" as numbers > 0, in any order. INVALID_ARGUMENT names the value.
absl::StatusOr<std::vector<double>> ParseRates(const std::string& text);

}  // namespace skein::services
