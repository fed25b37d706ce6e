// EngineFailures: the engines that failed under one request, or were lost while they computed it.
// A request under which two did is not planned again (Replanner). Part of a Request.
// EarlyFailures: failures under requests that this orchestrator does not know yet. Owned by
// WorkerSide.
//
// A request that comes from another orchestrator, or from one before a restart, brings a count: its
// router was told. That orchestrator's plans have lower epochs. A failure under one of them may be
// reported here, too, when the report was not acknowledged there: then it may be in the count or
// not. Of the count and the number of these reports the larger one is taken. So no engine counts
// twice.
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
  // `told`: the count of the request's router. Plans up to the epoch `before` are another
  // orchestrator's.
  EngineFailures(int64_t told, Epoch before) : told_(told), before_(before) {}

  // The instance reports that its engine failed in a step with the request, under a plan of this
  // epoch. False: nothing new.
  bool Fail(InstanceId instance, Epoch epoch);
  // The instance was lost while it computed the prompt.
  void Lose(InstanceId instance) { lost_.insert(instance); }

  int64_t failed() const;  // what its router is told
  int64_t failed_or_lost() const;
  std::string ToString() const;  // which; for people

 private:
  Instances Known() const;  // all that are known by name

  int64_t told_ = 0;
  Epoch before_;
  Instances failed_before_;  // under a plan of another orchestrator
  Instances failed_;         // no member of failed_before_
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
  std::deque<RequestId> oldest_first_;  // may name requests that were taken
};

}  // namespace skein::scheduler::orchestrator
