// GroupRank: one rank of a bound group: its end of the step feed, its batch, and the engine that
// runs what the feed starts, on a thread of its own. The lead's asks `next` for plans; members run
// what they are fed, without their cores.
//
// Whatever ends the group (a rank dies or is stopped, a step fails, ranks disagree), every rank
// that lives ends: its communicators are broken, so that a step in flight ends, its batch is
// dissolved, and `ended` is called, once. All waits are bounded (FeedLimits, step_max).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/host/rank_wire.h"
#include "engine/model/group/group_contexts.h"
#include "engine/stepping/step_engine.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/feed_member.h"
#include "scheduler/worker/group/group_batch.h"
#include "services/worker/engine/step_conversion.h"
#include "services/worker/engine/step_counts.h"

namespace skein::services {

class GroupRank {
 public:
  struct Options {
    uint64_t epoch = 0;  // of the formation; the same at every rank
    scheduler::FeedLimits limits;
    std::chrono::milliseconds step_max{60'000};  // of a step together
    StepCounts* counts = nullptr;  // of the instance's steps; outlives this; may be null
    // All are called on the rank's thread.
    // Of the lead: the next step, when one may be proposed (FeedLead::Propose sets epoch and step);
    // nullopt: none for now, Look asks again. A plan that this rank's batch refuses, or that
    // another refuses (StepRefused), runs nowhere.
    std::function<std::optional<scheduler::FeedPlan>(const scheduler::GroupBatch& batch)> next;
    // A step together has ended here. What was sampled is in the batch.
    std::function<void(const scheduler::GroupStep& step,
                       const std::vector<scheduler::StepResult>& results)>
        stepped;
    // Every rank has ended the step, or one refused it. Of the lead; may be empty.
    std::function<void(const scheduler::StepCompleted&)> completed;
    std::function<void(const scheduler::StepRefused&)> refused;
    // A step of this rank's own is due, of so many tokens at most. Returns when it has ended.
    // Empty: the rank has none.
    std::function<void(int64_t tokens)> own_step;
    // The group is over here; the batch is empty again.
    std::function<void(const absl::Status& why,
                       const std::vector<std::pair<scheduler::RequestId, scheduler::Epoch>>& left)>
        ended;
  };

  // `engine` and `pool` outlive this, and nobody else uses them or the context meanwhile; blocks
  // have the context's layout.
  GroupRank(engine::StepEngine* engine, std::shared_ptr<engine::GroupContext> context,
            scheduler::BlockPool* pool, Options options);
  ~GroupRank();  // ends the group; waits for the step in flight, which it breaks

  // Any thread: on the rank's thread, before the next plan. Not after the group has ended.
  void Offer(scheduler::OfferedSequence sequence);
  // Any thread: `next` may have a plan now.
  void Look();
  // Any thread: ends the group at all its ranks.
  void End(const absl::Status& why);

 private:
  using Clock = std::chrono::steady_clock;

  void Loop();
  void TakePosted();
  void TakeArrivals(const std::vector<engine::RankWire::Arrival>& arrivals);
  void TakeCompleted();
  void Propose();
  void Tick();
  void Carry(const scheduler::FeedEffects& effects);
  void On(const scheduler::SendFeed& effect);
  void On(const scheduler::EnterGroupStep& effect);
  void On(const scheduler::StepRefused& effect);
  void On(const scheduler::StepCommitted&) {}
  void On(const scheduler::StepCompleted& effect);
  void On(const scheduler::GroupFailed& effect);
  void Launch(const scheduler::GroupStep& step);
  void StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled);
  void Finish();
  void Post(std::function<void()> action);
  scheduler::TimeUs NowUs() const;
  scheduler::TimeUs NextTick() const;
  bool leads() const { return context_->rank() == 0; }

  const std::shared_ptr<engine::GroupContext> context_;
  engine::RankWire* const wire_;  // the context's
  const Options options_;
  scheduler::GroupBatch batch_;
  std::optional<scheduler::FeedLead> lead_;  // one of the two
  std::optional<scheduler::FeedMember> member_;
  engine::StepEngine* const engine_;
  StepConversion conversion_;
  // Of the step in flight.
  std::optional<scheduler::GroupStep> step_;
  StepConversion::Planned planned_;
  bool own_ended_ = false;
  std::optional<absl::Status> failed_;
  bool finished_ = false;
  scheduler::TimeUs retry_us_ = 0;  // no plan is asked for before, after a refusal

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace skein::services
