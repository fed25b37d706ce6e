// A request's way through a prefill-worker: asking, computing, granted, handed over, committed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"
#include "scheduler/worker/prefill_impl.h"

namespace skein::scheduler {
namespace {

// The call may be made again: it did not get through, or nobody knows whether it did.
bool IsUnreachable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

int64_t PromptTokens(const SpecPtr& spec) { return static_cast<int64_t>(spec->prompt.size()); }

}  // namespace

void PrefillCore::Impl::RunTimers(Request& request) {
  if (request.state == State::kEnding) return;
  if (now_ >= request.deadline_us) {
    return End(request, absl::DeadlineExceededError("the request's deadline passed in prefill"));
  }
  if (request.handoff.active && now_ >= request.grant.post_until_us) {
    return End(request, absl::UnavailableError("the decode side's lease was not renewed"));
  }
  if (now_ >= request.ask_retry_us) Ask(request);
  if (now_ >= request.grant.retry_us) AskForGrant(request);
  if (now_ >= request.grant.renew_us) Renew(request);
  if (now_ >= request.commit.retry_us) MaybeCommit(request);
}

// In plan-sequence order, and none overtakes one that waits for blocks.
void PrefillCore::Impl::AskForPlaces() {
  while (!queue_.empty() && MayAskMore()) {
    Request& request = requests_.at(queue_.begin()->second);
    absl::StatusOr<BlockTable> blocks =
        pool_.Allocate(BlocksOf(shape_, PromptTokens(request.spec)));
    if (!blocks.ok()) return;
    request.blocks = *std::move(blocks);
    request.state = State::kAsking;
    queue_.erase(queue_.begin());
    front_.insert(request.spec->id);
    front_tokens_ += PromptTokens(request.spec);
    Ask(request);
  }
}

bool PrefillCore::Impl::MayAskMore() const {
  const auto count = static_cast<int64_t>(front_.size());
  const BatchLimits& step = config_.batch;
  return count < config_.begin_ahead ||
         (count < 2 * step.max_batch_sequences && front_tokens_ < 2 * step.max_batch_tokens);
}

void PrefillCore::Impl::LeaveFront(const Request& request) {
  if (front_.erase(request.spec->id) == 1) front_tokens_ -= PromptTokens(request.spec);
}

void PrefillCore::Impl::Ask(Request& request) {
  request.ask_retry_us = kNever;
  request.ask_calling = true;
  effects_.push_back(CallBeginPrefill{{.instance = membership_.instance(),
                                       .incarnation = membership_.identity().incarnation,
                                       .id = request.spec->id,
                                       .epoch = request.epoch},
                                      config_.begin_timeout_us});
}

void PrefillCore::Impl::On(const BeginPrefillReplied& event) {
  const absl::Status& status = event.reply.status;
  Request* request = FindLive(event.id, event.epoch);
  if (request == nullptr || request->state != State::kAsking) {
    // Cancelled meanwhile: the reservation would wait for its lease's end.
    if (status.ok() && (request == nullptr || request->endpoint.empty())) {
      effects_.push_back(CallAbort{event.reply.placed.endpoint,
                                   {event.id, event.epoch, absl::CancelledError("cancelled")},
                                   config_.rpc_timeout_us});
    }
    return;
  }
  request->ask_calling = false;
  if (status.ok()) {
    request->state = State::kPlaced;
    request->endpoint = event.reply.placed.endpoint;
    batch_.Add(event.id, request->sequence, PromptTokens(request->spec), 0);
    return AskForGrant(*request);
  }
  const bool unreachable = IsUnreachable(status);
  if (!unreachable && status.code() != absl::StatusCode::kResourceExhausted) {
    return End(*request, status);
  }
  TimeUs& since = request->ask_unreachable_since_us;
  since = unreachable ? std::min(since, now_) : kNever;
  if (unreachable && now_ - since >= config_.begin_give_up_us) {
    return End(*request, absl::UnavailableError("the orchestrator cannot be reached"));
  }
  request->ask_retry_us = now_ + config_.retry_us;
  Arm(request->ask_retry_us);
}

void PrefillCore::Impl::AskForGrant(Request& request) {
  Grant& grant = request.grant;
  grant.retry_us = kNever;
  grant.calling = true;
  grant.sent_us = now_;
  ++grant.attempts;
  effects_.push_back(CallGrant{request.endpoint,
                               {.id = request.spec->id,
                                .epoch = request.epoch,
                                .prefill = membership_.instance(),
                                .incarnation = membership_.identity().incarnation,
                                .shape = shape_},
                               config_.rpc_timeout_us});
}

void PrefillCore::Impl::On(const GrantReplied& event) {
  Request* request = FindLive(event.id, event.epoch);
  if (request == nullptr || !request->grant.calling) return;  // its Abort was sent or will be
  Grant& grant = request->grant;
  grant.calling = false;
  const absl::Status& status = event.reply.status;
  if (status.ok()) return StartWriting(*request, event.reply);
  if (!IsUnreachable(status) || grant.attempts >= config_.attempts) return End(*request, status);
  grant.retry_us = now_ + config_.retry_us;
  Arm(grant.retry_us);
}

void PrefillCore::Impl::StartWriting(Request& request, const GrantReply& reply) {
  Grant& grant = request.grant;
  const auto blocks = static_cast<int64_t>(reply.blocks.size());
  if (blocks != BlocksOf(shape_, PromptTokens(request.spec))) {
    return End(request, absl::InternalError(absl::StrCat("granted blocks: ", blocks)));
  }
  grant.post_until_us = grant.sent_us + reply.lease_us;
  if (now_ >= grant.post_until_us) {
    return End(request, absl::UnavailableError("the grant came after its own lease"));
  }
  grant.granted = true;
  grant.renew_us = grant.sent_us + reply.lease_us / 3;
  Arm(std::min(grant.renew_us, grant.post_until_us));
  request.handoff.active = true;
  effects_.push_back(StartHandoff{.id = request.spec->id,
                                  .epoch = request.epoch,
                                  .spec = request.spec,
                                  .endpoint = request.endpoint,
                                  .local_blocks = request.blocks,
                                  .remote_blocks = reply.blocks,
                                  .memory = reply.memory,
                                  .post_until_us = grant.post_until_us});
}

void PrefillCore::Impl::Renew(Request& request) {
  Grant& grant = request.grant;
  grant.renew_us = kNever;
  grant.renewing = true;
  grant.renew_sent_us = now_;
  effects_.push_back(
      CallRenew{request.endpoint, {request.spec->id, request.epoch}, config_.rpc_timeout_us});
}

void PrefillCore::Impl::On(const RenewReplied& event) {
  Request* request = FindLive(event.id, event.epoch);
  if (request == nullptr || !request->grant.renewing) return;
  Grant& grant = request->grant;
  grant.renewing = false;
  if (event.reply.status.ok()) {
    grant.post_until_us = std::max(grant.post_until_us, grant.renew_sent_us + event.reply.lease_us);
    grant.renew_us = std::max(now_, grant.renew_sent_us + event.reply.lease_us / 3);
    if (request->handoff.active) {
      effects_.push_back(ExtendHandoff{event.id, event.epoch, grant.post_until_us});
    }
  } else if (IsUnreachable(event.reply.status)) {
    grant.renew_us = now_ + config_.retry_us;
  } else if (!request->commit.calling) {  // else the commit's answer says it better
    return End(*request, event.reply.status);
  }
  Arm(grant.renew_us);
}

void PrefillCore::Impl::StartStep() {
  if (batch_.InFlight() || !engine_status_.ok()) return;
  std::vector<StepItem> items = batch_.Plan();
  if (items.empty()) return;
  step_.clear();
  for (const StepItem& item : items) {
    const Request& request = requests_.at(item.id);
    step_.push_back({.id = item.id,
                     .epoch = request.epoch,
                     .spec = request.spec,
                     .position = item.position,
                     .count = item.count,
                     .blocks = request.blocks,
                     .sample = item.sample && request.spec->max_tokens > 0,
                     .output = nullptr});
  }
  step_started_us_ = now_;
  effects_.push_back(RunStep{++step_number_, step_});
}

void PrefillCore::Impl::On(const StepDone& event) {
  if (!batch_.InFlight() || event.step != step_number_) return;
  const std::vector<StepSequence> ran = std::move(step_);
  step_.clear();
  batch_.Complete();
  absl::Status status = event.status;
  if (status.ok() && event.results.size() != ran.size()) {
    status = absl::InternalError("the engine returned another number of results");
  }
  int64_t tokens = 0;
  for (size_t i = 0; i < ran.size(); ++i) {
    Request& request = requests_.at(ran[i].id);
    tokens += ran[i].count;
    if (request.state == State::kEnding) {
      MaybeLeave(request);
    } else if (!status.ok()) {
      End(request, status);
    } else {
      TakeResult(request, ran[i], event.results[i]);
    }
  }
  if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) FailEngine(status);
  if (!status.ok()) return;
  prompt_tokens_ += tokens;
  rate_.Add(tokens, now_ - step_started_us_);
}

void PrefillCore::Impl::TakeResult(Request& request, const StepSequence& ran,
                                   const StepResult& result) {
  absl::StrAppend(&request.prompt_logprobs, result.prompt_logprobs);
  if (ran.position + ran.count < PromptTokens(request.spec)) return;
  request.computed = true;
  LeaveFront(request);
  request.token = result.token;
  request.payload = result.payload;
  batch_.Remove(ran.id);
  MaybeCommit(request);
}

void PrefillCore::Impl::FailEngine(const absl::Status& status) {
  engine_status_ = status;
  EndAll(
      absl::UnavailableError(absl::StrCat("the engine failed: ", std::string(status.message()))));
  membership_.StartDrain();
}

void PrefillCore::Impl::On(const HandoffDone& event) {
  Request* request = Find(event.id, event.epoch);
  if (request == nullptr || !request->handoff.active) return;
  request->handoff.active = false;
  request->handoff.done = true;
  request->handoff.bytes_per_layer = event.bytes_per_layer;
  if (request->state == State::kEnding) return MaybeLeave(*request);
  MaybeCommit(*request);
}

void PrefillCore::Impl::On(const HandoffFailed& event) {
  Request* request = Find(event.id, event.epoch);
  if (request == nullptr || !request->handoff.active) return;
  request->handoff.active = false;
  if (request->state == State::kEnding) return MaybeLeave(*request);
  End(*request, event.status.ok() ? absl::InternalError("handoff failed") : event.status);
}

void PrefillCore::Impl::On(const HandoffStopped& event) {
  On(HandoffFailed{event.id, event.epoch, absl::InternalError("handoff stopped unasked")});
}

void PrefillCore::Impl::MaybeCommit(Request& request) {
  Commit& commit = request.commit;
  if (!request.computed || !request.handoff.done || commit.calling) return;
  commit.retry_us = kNever;
  commit.calling = true;
  ++commit.attempts;
  effects_.push_back(CallCommit{request.endpoint,
                                {.id = request.spec->id,
                                 .epoch = request.epoch,
                                 .bytes_per_layer = request.handoff.bytes_per_layer,
                                 .has_token = request.spec->max_tokens > 0,
                                 .token = request.token,
                                 .payload = request.payload,
                                 .prompt_logprobs = request.prompt_logprobs},
                                config_.rpc_timeout_us});
}

void PrefillCore::Impl::On(const CommitReplied& event) {
  Request* request = FindLive(event.id, event.epoch);
  if (request == nullptr || !request->commit.calling) return;
  Commit& commit = request->commit;
  commit.calling = false;
  const absl::Status& status = event.reply.status;
  if (status.ok()) return Finish(*request);
  if (!IsUnreachable(status) || commit.attempts >= config_.attempts) return End(*request, status);
  commit.retry_us = now_ + config_.retry_us;
  Arm(commit.retry_us);
}

}  // namespace skein::scheduler
