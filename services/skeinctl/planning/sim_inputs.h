// What `skeinctl simulate` and `skeinctl profile-rate` have in common: their flags for the cluster
// and the workload, and what these name.
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
  int64_t node_size = 8;
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
  const scheduler::LatencyModel& model() const { return profile_.latency; }
  const scheduler::Cluster& cluster() const { return cluster_; }
  // Those asked for, or DefaultRates; none means a recorded trace as it is.
  const std::vector<double>& rates() const { return rates_; }

  // At `rate`, or as recorded if it is none.
  // `offset` is added to the seed.
  absl::StatusOr<std::vector<scheduler::SimRequest>> Workload(std::optional<double> rate,
                                                              int64_t offset = 0) const;

  // Poisson arrivals of the trace's lengths, with another seed than Workload: what a table is tuned
  // on is not what it is used on.
  scheduler::WorkloadOfLoad TuningWorkload() const;
  // The loads to tune for before a simulation at `rate`.
  std::vector<double> TuningLoads(std::optional<double> rate) const;

 private:
  explicit SimInputs(Profile profile) : profile_(std::move(profile)) {}

  Profile profile_;
  scheduler::Cluster cluster_;
  std::vector<double> rates_;
  std::optional<scheduler::LengthDistribution> lengths_;
  std::vector<scheduler::SimRequest> recorded_;  // if no lengths_
  scheduler::ArrivalOptions arrivals_;
};

// A quarter, a half and three quarters of what the cluster could prefill at most, two digits each:
// its instances over the instance-seconds of a mean prompt at the SP size that costs the least.
// REQUIRES a cluster that the model's smallest SP size fits.
std::vector<double> DefaultRates(const scheduler::LengthDistribution& lengths,
                                 const scheduler::LatencyModel& model,
                                 const scheduler::Cluster& cluster);

// "a,b" as numbers > 0, ascending order not needed. INVALID_ARGUMENT names the value.
absl::StatusOr<std::vector<double>> ParseRates(const std::string& text);

}  // namespace skein::services
