// ExpectedStreams: routers that attached to a request before its blocks were taken here. The
// orchestrator tells a router where its request was announced together with the plan, so the router
// need not wait until it hears that the transfer is open. Part of DecodeCore.
//
// An entry stays until the request gets blocks (Take), has ended here (TakeUpTo), or the router
// detaches (Remove), as it does when the request is placed elsewhere or ends. So a router holds at
// most as many entries as its token stream may have requests.
//
// Each call costs O(log entries). Invariant (CheckInvariants): both maps hold the same entries.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"

namespace skein::scheduler {

class ExpectedStreams {
 public:
  struct Expected {
    CallId call;
    Epoch epoch;
  };

  // False: a router has attached to this epoch already; nothing changed.
  bool Add(RequestId id, Epoch epoch, CallId call) {
    if (!by_request_.emplace(std::pair(id, epoch), call).second) return false;
    by_call_.emplace(call, std::pair(id, epoch));
    return true;
  }
  std::optional<CallId> Take(RequestId id, Epoch epoch) {
    const auto it = by_request_.find({id, epoch});
    if (it == by_request_.end()) return std::nullopt;
    const CallId call = it->second;
    Erase(it);
    return call;
  }
  // Those of this epoch and of older ones.
  std::vector<Expected> TakeUpTo(RequestId id, Epoch epoch) {
    std::vector<Expected> taken;
    auto it = by_request_.lower_bound({id, Epoch{}});
    while (it != by_request_.end() && it->first.first == id && it->first.second <= epoch) {
      taken.push_back({it->second, it->first.second});
      it = Erase(it);
    }
    return taken;
  }
  // An unknown call is fine.
  void Remove(CallId call) {
    const auto it = by_call_.find(call);
    if (it != by_call_.end()) Erase(by_request_.find(it->second));
  }

  size_t size() const { return by_request_.size(); }
  absl::Status CheckInvariants() const {
    for (const auto& [request, call] : by_request_) {
      const auto it = by_call_.find(call);
      if (it != by_call_.end() && it->second == request) continue;
      return absl::InternalError(
          absl::StrCat("ExpectedStreams: ", ToString(request.first), " is not known by its call"));
    }
    if (by_call_.size() == by_request_.size()) return absl::OkStatus();
    return absl::InternalError("ExpectedStreams: a call without a request");
  }

 private:
  using ByRequest = std::map<std::pair<RequestId, Epoch>, CallId>;

  ByRequest::iterator Erase(ByRequest::iterator it) {
    by_call_.erase(it->second);
    return by_request_.erase(it);
  }

  ByRequest by_request_;
  std::map<CallId, std::pair<RequestId, Epoch>> by_call_;
};

}  // namespace skein::scheduler
