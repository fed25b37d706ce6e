// ParkedRequests: the requests that wait for a prefill instance that takes them, by model in the
// order of their submission, and the models at which that may have changed. Part of
// OrchestratorCore.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

class ParkedRequests {
 public:
  void Add(const Request& request);
  void Remove(const Request& request);  // ignored if it is not parked
  // Requests of the model are parked: a new one waits behind them.
  bool HasLine(const std::string& model) const { return lines_.count(model) > 0; }

  // An instance of the model may take a request now.
  void NoteRoom(const std::string& model) { roomy_.insert(model); }
  // The models that NoteRoom named since the last call.
  std::set<std::string> TakeRoomy() { return std::exchange(roomy_, {}); }
  struct Place {
    uint64_t number = 0;  // of its submission
    RequestId id;
  };
  // The first that was submitted after number `last`.
  std::optional<Place> NextAfter(const std::string& model, uint64_t last) const;
  // The requests added since the last call, whether still parked or not.
  std::vector<RequestId> TakeAdded() { return std::exchange(added_, {}); }

  absl::Status CheckInvariants(const RequestTable& requests) const;

 private:
  std::map<std::string, std::map<uint64_t, RequestId>> lines_;  // none is empty
  std::set<std::string> roomy_;
  std::vector<RequestId> added_;
};

}  // namespace skein::scheduler::orchestrator
