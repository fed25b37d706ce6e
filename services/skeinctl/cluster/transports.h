// skeinctl transports: the paths between instances, of KV and of steps together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/orchestrator.pb.h"
#include "services/flags/flags.h"

namespace skein::services {

struct TransportsFlags {
  std::string orchestrator;
  std::string format = "table";
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h.
int RunTransports(const TransportsFlags& flags);

// What one instance says: the text of its /debug/transports, or why there is none.
struct TransportsAnswer {
  std::string json;
  std::string error;
};

// A prefill instance and a decode instance of one model. Empty `transport`: no handoff yet, or, if
// `error` is set, the prefill instance did not say.
struct HandoffPair {
  uint64_t from = 0;
  uint64_t to = 0;
  std::string from_endpoint, to_endpoint;
  std::string path, transport, why_not_faster, error;
  double bytes = 0;
  double gb_per_s = 0;
};

// Steps of an instance together with others, so many in all: ring steps of a prefill instance, and
// those of the groups of a decode instance's node, before the first, too. `instances` is 0 when
// `error` says why the instance told nothing.
struct GroupRow {
  uint64_t instance = 0;
  std::string role, endpoint;
  int64_t instances = 0;
  std::string path, why_not_faster, error;
  double bytes = 0;
  double gb_per_s = 0;
  double best_gb_per_s = 0;
};

struct TransportsView {
  std::vector<HandoffPair> handoffs;  // several of a pair that used several paths
  std::vector<GroupRow> groups;
};

// Pure. `answers` by instance.
TransportsView ViewOf(const v1::StatusResponse& status,
                      const std::map<uint64_t, TransportsAnswer>& answers);
std::string TransportsTable(const TransportsView& view);
std::string TransportsViewJson(const TransportsView& view);

}  // namespace skein::services
