#include "services/worker/group/group_rank.h"

#include <pthread.h>

#include <algorithm>
#include <span>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/kv/kv_spec.h"

namespace skein::services {
namespace {

using scheduler::FeedEffects;

// After a refusal: blocks come free by steps that end, so there is no hurry.
constexpr scheduler::TimeUs kRefusalPauseUs = 1000;
constexpr auto kIdleMax = std::chrono::seconds(10);

scheduler::RunStep RunStepOf(const scheduler::GroupStep& step) {
  return {.step = step.step, .sequences = step.sequences};
}

}  // namespace

GroupRank::GroupRank(engine::StepEngine* engine, std::shared_ptr<engine::GroupContext> context,
                     scheduler::BlockPool* pool, Options options)
    : context_(std::move(context)),
      wire_(context_->feed()),
      options_(std::move(options)),
      batch_(pool, KvLayout{context_->size()},
             TokensPerBlock(KvLayout{context_->size()}, engine->Spec().kv.kv_heads,
                            engine->Spec().kv.block_tokens)),
      engine_(engine),
      conversion_(engine) {
  if (leads()) {
    lead_.emplace(options_.epoch, context_->size(), &batch_, options_.limits);
  } else {
    member_.emplace(options_.epoch, &batch_, options_.limits);
  }
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "group-rank");
    Loop();
  });
}

GroupRank::~GroupRank() {
  End(absl::UnavailableError("an instance has left the group"));
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wire_->Wake();
  thread_.join();
}

void GroupRank::Post(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(action));
  }
  wire_->Wake();
}

void GroupRank::Offer(scheduler::OfferedSequence sequence) {
  Post([this, sequence = std::move(sequence)]() mutable {
    if (!failed_.has_value()) batch_.Offer(std::move(sequence));
  });
}

void GroupRank::Look() { wire_->Wake(); }

void GroupRank::End(const absl::Status& why) {
  Post([this, why] {
    FeedEffects effects;
    lead_.has_value() ? lead_->End(why, &effects) : member_->End(why, &effects);
    Carry(effects);
  });
}

void GroupRank::Loop() {
  std::vector<engine::RankWire::Arrival> arrivals;
  while (!finished_) {
    TakePosted();  // first: what was offered before a plan was sent is here when the plan is taken
    TakeArrivals(arrivals);
    TakeCompleted();
    Propose();
    Tick();
    if (failed_.has_value() && !step_.has_value()) Finish();
    if (finished_) break;
    const scheduler::TimeUs next = NextTick();
    const auto until = next == scheduler::kNever
                           ? Clock::now() + kIdleMax
                           : Clock::time_point(std::chrono::microseconds(next));
    arrivals = wire_->Wait(std::min(until, Clock::now() + kIdleMax));
  }
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    wire_->Wait(Clock::now() + kIdleMax);
    lock.lock();
  }
}

void GroupRank::TakePosted() {
  std::vector<std::function<void()>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& action : posted) action();
}

void GroupRank::TakeArrivals(const std::vector<engine::RankWire::Arrival>& arrivals) {
  for (const engine::RankWire::Arrival& arrival : arrivals) {
    FeedEffects effects;
    absl::Status lost;
    absl::StatusOr<scheduler::FeedMessage> message =
        absl::UnavailableError("its process has ended");
    if (!arrival.died) {
      message = scheduler::DecodeFeed(std::as_bytes(std::span(arrival.message)));
    }
    if (!message.ok()) lost = message.status();
    // Members hear of one another's death by the lead, and by the step's communicators.
    if (lead_.has_value()) {
      lost.ok() ? lead_->Take(arrival.rank, *message, NowUs(), &effects)
                : lead_->Lost(arrival.rank, lost, &effects);
    } else if (arrival.rank == 0) {
      lost.ok() ? member_->Take(*message, NowUs(), &effects) : member_->Lost(lost, &effects);
    }
    Carry(effects);
  }
}

void GroupRank::Propose() {
  if (!lead_.has_value() || !options_.next || NowUs() < retry_us_) return;
  while (lead_->MayPropose()) {
    std::optional<scheduler::FeedPlan> plan = options_.next(batch_);
    if (!plan.has_value()) return;
    FeedEffects effects;
    const absl::Status proposed = lead_->Propose(*std::move(plan), NowUs(), &effects);
    if (!proposed.ok()) return On(scheduler::StepRefused{0, 0, proposed, batch_.free_blocks()});
    Carry(effects);
  }
}

void GroupRank::Tick() {
  FeedEffects effects;
  lead_.has_value() ? lead_->Tick(NowUs(), &effects) : member_->Tick(NowUs(), &effects);
  Carry(effects);
}

scheduler::TimeUs GroupRank::NowUs() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

scheduler::TimeUs GroupRank::NextTick() const {
  scheduler::TimeUs next = lead_.has_value() ? lead_->NextTick() : member_->NextTick();
  if (retry_us_ > NowUs()) next = std::min(next, retry_us_);
  return next;
}

void GroupRank::Carry(const FeedEffects& effects) {
  for (const scheduler::FeedEffect& effect : effects) {
    std::visit([this](const auto& one) { On(one); }, effect);
  }
}

void GroupRank::On(const scheduler::SendFeed& effect) {
  wire_->Send(effect.rank, Encode(effect.message));
}

void GroupRank::On(const scheduler::StepRefused& effect) {
  retry_us_ = NowUs() + kRefusalPauseUs;
  if (options_.refused) options_.refused(effect);
}

void GroupRank::On(const scheduler::StepCompleted& effect) {
  if (options_.completed) options_.completed(effect);
}

// A step in flight ends with its communicators; Finish follows it.
void GroupRank::On(const scheduler::GroupFailed& effect) {
  if (failed_.has_value()) return;
  failed_ = effect.why;
  context_->Abort(effect.why);
}

void GroupRank::On(const scheduler::EnterGroupStep& effect) {
  step_ = effect.step;
  if (effect.step.mode.own()) {
    if (options_.own_step) options_.own_step(effect.step.own_tokens);
    own_ended_ = true;
  } else {
    Launch(effect.step);
  }
  for (const scheduler::ReleaseSequence& removed : effect.step.removed) {
    conversion_.Release(removed);
  }
}

void GroupRank::Launch(const scheduler::GroupStep& step) {
  planned_ = conversion_.PlanOf(RunStepOf(step));
  if (planned_.plan.sequences.empty()) {
    own_ended_ = true;
    return;
  }
  engine::StepPlan plan = std::move(planned_.plan);
  const engine::GroupMode mode = {step.mode.sp, step.mode.tp};
  plan.group = engine::GroupMeeting{
      .enter = [context = context_, mode,
                until = Clock::now() + options_.step_max]() -> absl::StatusOr<engine::GroupPart> {
        if (mode.ranks() == context->size()) return context->Part(mode, until);
        return absl::InvalidArgumentError(absl::StrCat("mode: sp = ", mode.sp, ", tp = ", mode.tp,
                                                       " does not fit a group of ",
                                                       context->size()));
      },
      .leave = [](const absl::Status&) {}};
  plan.completed = [context = context_](bool) { context->feed()->Wake(); };
  engine_->Launch(std::move(plan));
}

void GroupRank::TakeCompleted() {
  while (step_.has_value()) {
    scheduler::StepDone done{.step = step_->step, .status = {}, .results = {}};
    if (std::exchange(own_ended_, false)) {
      if (!step_->mode.own()) done.results.resize(step_->sequences.size());
      for (size_t i = 0; i < done.results.size(); ++i) {
        done.results[i].status = planned_.admitted.at(i);
      }
    } else {
      const std::optional<engine::CompletedStep> completed = engine_->Poll();
      if (!completed.has_value()) return;
      done = StepConversion::DoneOf(planned_, *completed);
      if (completed->status.ok() && options_.counts != nullptr) options_.counts->Add(*step_);
    }
    const scheduler::GroupStep step = *std::exchange(step_, std::nullopt);
    std::vector<int32_t> sampled;
    for (size_t i = 0; done.status.ok() && i < done.results.size(); ++i) {
      if (!step.sequences[i].sample) continue;
      sampled.push_back(done.results[i].status.ok() ? done.results[i].token : -1);
    }
    StepEnded(done.status, sampled);
    if (done.status.ok() && !step.mode.own() && options_.stepped) {
      options_.stepped(step, done.results);
    }
  }
}

// The feed may start the next one at once.
void GroupRank::StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled) {
  FeedEffects effects;
  lead_.has_value() ? lead_->StepEnded(status, sampled, NowUs(), &effects)
                    : member_->StepEnded(status, sampled, 0, false, &effects);
  Carry(effects);
}

void GroupRank::Finish() {
  finished_ = true;
  const auto left = batch_.Dissolve();
  for (const auto& [id, epoch] : left) conversion_.Release({id, epoch});
  if (options_.ended) options_.ended(*failed_, left);
}

}  // namespace skein::services
