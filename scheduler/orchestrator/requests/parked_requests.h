// ParkedRequests: the requests that wait for a prefill instance that takes them, by model in the
// order of their submission, and the models at which that may have changed. Part of
// OrchestratorCore.
//
// When there may be room at a model, its requests are tried in order (Next), but few that find
// none: a request of one kind is likely to find none where others of its kind have not. A kind is
// what decides which instances can hold a prompt: its size, within a factor of two, and whether one
// instance must. So a line of requests that need an instance which is busy costs each report
// little, and does not block the requests of other kinds. Those of a priority above 0 are tried
// before all others, those of one below 0 after them. Half of the tries go to the first of a kind,
// the other half go on where the round before stopped: so each request is tried in turn, also
// behind some of its kind that fit no instance.
//
// Invariants (CheckInvariants): the lines hold the parked requests, each in the line of its model
// and kind; no line is empty.
#pragma once

#include <compare>
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
  struct Kind {
    bool one_instance = false;  // it needs, or asked for, one
    int size = 0;               // the bits of the number of its prompt's tokens
    int behind = 0;             // minus the sign of its priority
    auto operator<=>(const Kind&) const = default;
  };
  static Kind KindOf(const Request& request);

  void Add(const Request& request);
  void Remove(const Request& request);  // ignored if it is not parked
  // Requests of the model are parked: a new one waits behind them.
  bool HasLine(const std::string& model) const { return lines_.count(model) > 0; }

  // An instance of the model may take a request now.
  void NoteRoom(const std::string& model) { roomy_.insert(model); }
  // The models that NoteRoom named since the last call.
  std::set<std::string> TakeRoomy() { return std::exchange(roomy_, {}); }

  // So many of a kind are tried without success before no more of it are, in one round.
  static constexpr int kTriesMax = 8;
  // One round over the requests of a model.
  struct Round {
    struct Tried {
      uint64_t last = 0;  // the number of the last one
      int failed = 0;
    };
    std::map<Kind, Tried> tried;
  };
  struct Place {
    RequestId id;
    Kind kind;
  };
  // The first, by the sign of its priority and then by submission, of those that this round may try
  // and has not. The caller tries it and calls NoteFailed if it is still parked then.
  std::optional<Place> Next(const std::string& model, Round* round);
  static void NoteFailed(const Place& place, Round* round) { ++round->tried[place.kind].failed; }

  // The requests added since the last call, whether still parked or not.
  std::vector<RequestId> TakeAdded() { return std::exchange(added_, {}); }

  absl::Status CheckInvariants(const RequestTable& requests) const;

 private:
  struct Line {
    std::map<uint64_t, RequestId> requests;  // by Request::number
    uint64_t stopped_at = 0;                 // the last number that the round before tried
  };

  std::map<std::string, std::map<Kind, Line>> lines_;
  std::set<std::string> roomy_;
  std::vector<RequestId> added_;
};

}  // namespace skein::scheduler::orchestrator
