// ParkedRequests: the requests that wait for a prefill instance that takes them, by model, and the
// models at which that may have changed. Part of OrchestratorCore.
//
// Order. Fairly by tenant, by the tokens of prompts (fairness/fair_order.h), and of one tenant in
// the order of submission; so with one tenant all are in the order of submission. Those of a
// priority above 0 are tried before all others, those of one below 0 after them.
//
// When there may be room at a model, its requests are tried in order (Next), but few that find
// none: a request of one kind is likely to find none where others of its kind have not. A kind is
// what decides which instances can hold a prompt: its size, within a factor of two, and whether one
// instance must. So a line of requests that need an instance which is busy costs each report
// little, and does not block the requests of other kinds. Half of the tries of a kind go by the
// order above. The other half go on in the order of submission, whosever the requests are, where
// the round before stopped: so each request is tried in turn, also behind some of its kind that fit
// no instance.
//
// A try costs the logarithm of the number of requests, and once for each tenant that waits.
//
// Invariants (CheckInvariants): the lines hold the parked requests, each in the line of its model
// and kind, and there under its tenant; no line is empty.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/fairness/fair_order.h"
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
  // It leaves since it was planned: its tenant has had its turn, for so many tokens. False: it was
  // not parked.
  bool Serve(const Request& request, int64_t tokens);
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
      std::set<uint64_t> numbers;  // Request::number
      uint64_t went_on_to = 0;     // the last one that was tried in the order of submission
      int failed = 0;
    };
    std::map<Kind, Tried> tried;
  };
  struct Place {
    uint64_t number = 0;
    RequestId id;
    Kind kind;
    bool onward = false;  // by the order of submission, not by the other one
  };
  // The first of those that this round may try and has not. The caller tries it and calls
  // NoteFailed if it is still parked then. One that it does not try is next to be tried again.
  std::optional<Place> Next(const std::string& model, Round* round);
  void NoteFailed(const std::string& model, const Place& place, Round* round);

  // The requests added since the last call, whether still parked or not.
  std::vector<RequestId> TakeAdded() { return std::exchange(added_, {}); }

  absl::Status CheckInvariants(const RequestTable& requests) const;

 private:
  using Numbers = std::set<uint64_t>;
  struct Line {                                             // of one kind
    std::map<uint64_t, RequestId> requests;                 // by Request::number
    std::map<std::string, Numbers, std::less<>> of_tenant;  // the same; none is empty
    uint64_t stopped_at = 0;  // the last number that the round before tried
  };
  struct Lines {  // of one model
    std::map<Kind, Line> kinds;
    FairOrder<uint64_t> turns;  // all of them
  };
  static FairOwner OwnerOf(const Request& request) {
    return {request.spec->tenant, request.spec->tenant_weight, -KindOf(request).behind};
  }
  static std::optional<Place> NextInTurn(const Lines& lines, const Round& round);
  static std::optional<Place> FirstOf(std::string_view tenant, int behind, const Lines& lines,
                                      const Round& round);
  static std::optional<Place> NextOnward(Lines& lines, const Round& round);

  std::map<std::string, Lines> lines_;  // none is empty
  std::set<std::string> roomy_;
  std::vector<RequestId> added_;
};

}  // namespace skein::scheduler::orchestrator
