// A request's way through a prefill-worker: asking, computing, granted, handed over, committed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"
#include "scheduler/worker/prefill_impl.h"

namespace skein::scheduler {

bool PrefillCore::Impl::IsUnreachable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

absl::Status PrefillCore::Impl::EndOf(bool spanning, const absl::Status& status) {
  if (!spanning || status.code() != absl::StatusCode::kCancelled) return status;
  return absl::UnavailableError(status.message());
}

void PrefillCore::Impl::RunTimers(Request& request) {
  if (request.state == State::kEnding) return;
  if (now_ >= request.deadline_us) {
    return End(request, absl::DeadlineExceededError("the request's deadline passed in prefill"));
  }
  if (request.handoff.active && now_ >= request.grant.post_until_us) {
    return End(request, absl::UnavailableError("the decode side's lease was not renewed"));
  }
  if (request.spanning.has_value() && request.state == State::kQueued &&
      now_ >= request.spanning->join_until_us) {
    return End(request, absl::UnavailableError("no blocks in time to join the plan"));
  }
  if (now_ >= request.ask_retry_us) Ask(request);
  if (now_ >= request.grant.retry_us) AskForGrant(request);
  if (now_ >= request.grant.renew_us) Renew(request);
  if (now_ >= request.commit.retry_us) MaybeCommit(request);
  if (request.handoff.active && request.handoff.staging.has_value()) RunStagingTimers(request);
}

// In plan-sequence order, and none overtakes one that waits for blocks; but who is behind a hole in
// the chain of Assigns waits alone.
void PrefillCore::Impl::AskForPlaces() {
  for (auto next = queue_.begin(); next != queue_.end();) {
    Request& request = requests_.at(next->second);
    if (request.spanning.has_value() && !chain_.Complete(request.sequence)) {
      ++next;
      continue;
    }
    if (TakesFront(request) && !MayAskMore()) return;
    if (!TakeBlocks(request) && !TakeBlocksOfYounger(request)) return;
    next = queue_.erase(next);
    Admit(request);
  }
}

bool PrefillCore::Impl::TakeBlocks(Request& request) {
  const int64_t count = BlocksWanted(request);
  if (count == 0) {  // of a short chunk a member may get nothing
    request.blocks = std::make_shared<const std::vector<BlockId>>();
    return true;
  }
  absl::StatusOr<BlockTable> blocks = pool_.Allocate(count);
  if (!blocks.ok()) return false;
  request.blocks = *std::move(blocks);
  return true;
}

void PrefillCore::Impl::Admit(Request& request) {
  request.state = State::kAsking;
  if (TakesFront(request)) {
    request.in_front = true;
    ++front_;
    front_tokens_ += PromptTokens(*request.spec);
  }
  if (!request.endpoint.empty()) {
    BeginWork(request);
  } else if (TakesFront(request) && !request.ask_calling) {
    Ask(request);
  }  // else Start will tell
}

bool PrefillCore::Impl::MayAskMore() const {
  const BatchLimits& step = config_.batch;
  return front_ < config_.begin_ahead ||
         (front_ < 2 * step.max_batch_sequences && front_tokens_ < 2 * step.max_batch_tokens);
}

void PrefillCore::Impl::LeaveFront(Request& request) {
  if (!request.in_front) return;
  request.in_front = false;
  --front_;
  front_tokens_ -= PromptTokens(*request.spec);
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

// An Assign may come after a younger spanning plan took the last blocks. That plan is placed only
// after this request: as long as it is not, nothing is in its blocks.
bool PrefillCore::Impl::TakeBlocksOfYounger(Request& request) {
  for (;;) {
    Request* youngest = nullptr;
    for (auto& [id, other] : requests_) {
      if (!other.spanning.has_value() || other.state != State::kAsking) continue;
      if (other.sequence < request.sequence) continue;
      if (youngest == nullptr || youngest->sequence < other.sequence) youngest = &other;
    }
    if (youngest == nullptr) return false;
    BackToQueue(*youngest);
    if (TakeBlocks(request)) return true;
  }
}

void PrefillCore::Impl::BackToQueue(Request& request) {
  pool_.Free(*request.blocks);
  request.blocks = nullptr;
  request.ask_retry_us = kNever;
  request.state = State::kQueued;
  LeaveFront(request);
  queue_.emplace(request.sequence, request.spec->id);
}

// No decode room: blocks that a spanning plan before it waits for must not wait with it, for that
// plan may hold the room.
void PrefillCore::Impl::Yield(Request& request) {
  if (request.spanning.has_value()) return;
  const bool wanted = std::any_of(queue_.begin(), queue_.end(), [&](const auto& queued) {
    return queued.first < request.sequence && requests_.at(queued.second).spanning.has_value() &&
           chain_.Complete(queued.first);
  });
  if (wanted) BackToQueue(request);
}

void PrefillCore::Impl::On(const BeginPrefillReplied& event) {
  const absl::Status& status = event.reply.status;
  Request* request = FindLive(event.id, event.epoch);
  if (request == nullptr || !request->ask_calling) {
    // Ended meanwhile: the reservation would wait for its lease's end. Whoever cancelled it does
    // not read the reason; one whose engine failed here is planned anew.
    if (status.ok() && (request == nullptr || request->endpoint.empty())) {
      effects_.push_back(
          CallAbort{event.reply.placed.endpoint,
                    {event.id, event.epoch,
                     absl::UnavailableError("the request has ended at its prefill instance"),
                     membership_.instance()},
                    config_.rpc_timeout_us});
    }
    return;
  }
  request->ask_calling = false;
  if (status.ok()) return Place(*request, event.reply.placed);
  const bool unreachable = IsUnreachable(status);
  if (!unreachable && status.code() != absl::StatusCode::kResourceExhausted) {
    return End(*request, status);
  }
  TimeUs& since = request->ask_unreachable_since_us;
  since = unreachable ? std::min(since, now_) : kNever;
  if (unreachable && now_ - since >= config_.begin_give_up_us) {
    return End(*request, absl::UnavailableError("the orchestrator cannot be reached"));
  }
  if (request->state != State::kAsking) return;  // it asks again when it has blocks again
  request->ask_retry_us = now_ + config_.retry_us;
  Arm(request->ask_retry_us);
  if (!unreachable) Yield(*request);
}

void PrefillCore::Impl::On(const StartCalled& event) {
  const StartRequest& start = event.request;
  StartReply reply;
  if (Request* request = FindLive(start.id, start.epoch); request != nullptr) {
    Place(*request, start.placed);
  } else if (const auto it = successors_.find(start.id);
             it != successors_.end() && it->second.front().epoch == start.epoch) {
    it->second.front().placed = start.placed;
  } else if (!tombstones_.Committed(start.id, start.epoch)) {
    reply.status = tombstones_.Covers(start.id, start.epoch)
                       ? absl::FailedPreconditionError("epoch: ended already")
                       : absl::NotFoundError("the plan was not assigned to this instance");
  }
  effects_.push_back(AnswerStart{event.call, std::move(reply)});
}

void PrefillCore::Impl::Place(Request& request, const Placed& placed) {
  if (!request.endpoint.empty()) return;  // said again
  request.endpoint = placed.endpoint;
  request.ask_calling = false;
  request.ask_retry_us = kNever;
  if (request.state == State::kAsking) BeginWork(request);
}

void PrefillCore::Impl::BeginWork(Request& request) {
  request.state = State::kPlaced;
  if (!request.spanning.has_value()) {
    batch_.Add(request.spec->id, request.sequence, PromptTokens(*request.spec), 0, request.suspect);
  }
  OpenHandoffOf(request);
}

void PrefillCore::Impl::AskForGrant(Request& request) {
  Grant& grant = request.grant;
  grant.retry_us = kNever;
  grant.calling = true;
  grant.sent_us = now_;
  ++grant.attempts;
  if (grant.writer == InstanceId{}) {
    grant.writer = request.spanning.has_value() ? request.spanning->self : membership_.instance();
  }
  effects_.push_back(CallGrant{request.endpoint,
                               {.id = request.spec->id,
                                .epoch = request.epoch,
                                .prefill = grant.writer,
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
  if (!IsUnreachable(status) || grant.attempts >= config_.attempts) {
    return End(*request, EndOf(request->spanning.has_value(), status));
  }
  grant.retry_us = now_ + config_.retry_us;
  Arm(grant.retry_us);
}

void PrefillCore::Impl::StartWriting(Request& request, const GrantReply& reply) {
  Grant& grant = request.grant;
  const auto blocks = static_cast<int64_t>(reply.blocks.size());
  const bool staged = reply.staging_slots > 0;
  if (blocks != (staged ? 0 : BlocksOf(shape_, PromptTokens(*request.spec)))) {
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
  if (staged) request.handoff.staging.emplace();
  effects_.push_back(StartHandoff{.id = request.spec->id,
                                  .epoch = request.epoch,
                                  .endpoint = request.endpoint,
                                  .remote_blocks = reply.blocks,
                                  .memory = reply.memory,
                                  .post_until_us = grant.post_until_us,
                                  .staging_slots = reply.staging_slots});
}

void PrefillCore::Impl::Renew(Request& request) {
  Grant& grant = request.grant;
  grant.renew_us = kNever;
  grant.renewing = true;
  grant.renew_sent_us = now_;
  effects_.push_back(
      CallRenew{request.endpoint,
                {.id = request.spec->id, .epoch = request.epoch, .prefill = grant.writer},
                config_.rpc_timeout_us});
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
    return End(*request, EndOf(request->spanning.has_value(), event.reply.status));
  }
  Arm(grant.renew_us);
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
  if (!request.computed || commit.calling) return;
  if (request.spanning.has_value() && request.spanning->share.empty()) return Finish(request);
  if (!request.handoff.done) return;
  if (commit.attempts == 0) {
    request.times.handoff_us = now_ - request.started_us - request.times.prefill_us;
  }
  commit.retry_us = kNever;
  commit.calling = true;
  ++commit.attempts;
  effects_.push_back(CallCommit{request.endpoint,
                                {.id = request.spec->id,
                                 .epoch = request.epoch,
                                 .bytes_per_layer = request.handoff.bytes_per_layer,
                                 .has_token = request.has_token,
                                 .token = request.token,
                                 .payload = request.payload,
                                 .prompt_logprobs = request.prompt_logprobs,
                                 .prefill = request.grant.writer,
                                 .times = request.times},
                                config_.rpc_timeout_us});
}

void PrefillCore::Impl::On(const CommitReplied& event) {
  Request* request = FindLive(event.id, event.epoch);
  if (request == nullptr || !request->commit.calling) return;
  Commit& commit = request->commit;
  commit.calling = false;
  const absl::Status& status = event.reply.status;
  if (status.ok()) return Finish(*request);
  if (!IsUnreachable(status) || commit.attempts >= config_.attempts) {
    return End(*request, EndOf(request->spanning.has_value(), status));
  }
  commit.retry_us = now_ + config_.retry_us;
  Arm(commit.retry_us);
}

}  // namespace skein::scheduler
