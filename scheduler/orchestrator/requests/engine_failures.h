// EngineFailures: the engines that failed under one request, or were lost while they computed it.
// A request under which two did is not planned again (Replanner). Part of a Request.
// EarlyFailures: failures under requests that this orchestrator does not know yet. Owned by
// WorkerSide.
//
// A request that comes from another orchestrator, or from one before a restart, brings a count: its
// router was told. Failures that are reported here are added. An engine counts twice if that
// orchestrator told the router of it and died before the worker had the acknowledgement: then the
// request may end after one failure. The contrary would be worse: an engine that fails while there
// is no orchestrator is common after a first failure, and would not count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "scheduler/base/ids.h"

namespace skein::scheduler::orchestrator {

class EngineFailures {
 public:
  using Instances = std::set<InstanceId>;

  EngineFailures() = default;
  // `told`: the count of the request's router.
  explicit EngineFailures(int64_t told) : told_(told) {}

  // The instance reports that its engine failed in a step with the request. False: nothing new.
  bool Fail(InstanceId instance) { return failed_.insert(instance).second; }
  // The instance was lost while it computed the prompt.
  void Lose(InstanceId instance) { lost_.insert(instance); }

  // What its router is told.
  int64_t failed() const { return told_ + static_cast<int64_t>(failed_.size()); }
  int64_t failed_or_lost() const;
  std::string ToString() const;  // which; for people

 private:
  int64_t told_ = 0;
  Instances failed_;
  Instances lost_;
};

// Workers connect to a new orchestrator before routers do. Keeps the latest kMax requests.
class EarlyFailures {
 public:
  static constexpr size_t kMax = 1024;

  void Add(RequestId request, InstanceId instance);
  // Those under this request, which is known from now on.
  EngineFailures::Instances Take(RequestId request);
  size_t size() const { return failures_.size(); }

 private:
  std::map<RequestId, EngineFailures::Instances> failures_;
  std::deque<RequestId> oldest_first_;  // those of failures_
};

}  // namespace skein::scheduler::orchestrator
