// A request's way through a prefill-worker: asking, computing, granted, handed over, committed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/prefill/prefill_impl.h"

namespace skein::scheduler {

bool PrefillCore::Impl::IsUnreachable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

void PrefillCore::Impl::RunTimers(Request& request) {
  if (request.state == State::kEnding) return;
  if (now_ >= request.deadline_us) {
    return End(request, absl::DeadlineExceededError("the request's deadline passed in prefill"));
  }
  if (request.sp_plan.has_value() && request.state == State::kQueued &&
      now_ >= request.sp_plan->join_until_us) {
    return End(request, absl::UnavailableError("no blocks in time to join the plan"));
  }
  if (now_ >= request.ask_give_up_us) {
    return End(request, absl::UnavailableError("the orchestrator cannot be reached"));
  }
  if (now_ >= request.ask_retry_us) Ask(request);
}

// In plan-sequence order, and none overtakes one that waits for blocks.
void PrefillCore::Impl::AskForPlaces() {
  while (const std::optional<RequestId> first = queue_.First()) {
    Request& request = requests_.at(*first);
    if (TakesFront(request) && !queue_.MayEnterFront()) return;
    if (!TakeBlocks(request) && !TakeBlocksOfYounger(request)) return;
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
  SetState(request, State::kAsking);
  if (TakesFront(request)) {
    request.in_front = true;
    queue_.EnterFront(PromptTokens(*request.spec));
  }
  const bool placed = !request.placed.endpoint.empty();
  if (!TakesFront(request)) {
    if (placed) BeginWork(request);  // else Start will tell
  } else if (placed) {
    OpenTransfer(request);
  } else if (!request.ask_calling) {
    Ask(request);
  }
}

void PrefillCore::Impl::LeaveFront(Request& request) {
  if (!request.in_front) return;
  request.in_front = false;
  queue_.LeaveFront(PromptTokens(*request.spec));
}

void PrefillCore::Impl::Ask(Request& request) {
  request.ask_retry_us = kNever;
  if (!membership_.connected()) {
    request.ask_give_up_us = std::min(request.ask_give_up_us, now_ + config_.begin_give_up_us);
    return Arm(request);
  }
  request.ask_calling = true;
  effects_.push_back(CallPlaceDecode{{.instance = membership_.instance(),
                                      .incarnation = membership_.identity().incarnation,
                                      .id = request.spec->id,
                                      .epoch = request.epoch,
                                      .refused_by = request.refused_by,
                                      .why = request.refused_why}});
}

void PrefillCore::Impl::AskWhenConnected() {
  for (auto& [id, request] : requests_) {
    if (request.ask_give_up_us == kNever) continue;
    request.ask_give_up_us = kNever;
    if (request.state == State::kAsking) Ask(request);
  }
}

void PrefillCore::Impl::AwaitConnection() {
  for (auto& [id, request] : requests_) {
    if (!std::exchange(request.ask_calling, false)) continue;
    if (request.state == State::kAsking) Ask(request);
  }
}

// A younger SP plan may have taken the last blocks while this request waited for the end of
// its older epoch. That plan is placed only after this request has its decode room: as long as it
// is not, nothing is in its blocks.
bool PrefillCore::Impl::TakeBlocksOfYounger(Request& request) {
  while (const std::optional<RequestId> youngest = queue_.YoungestUnplaced(request.sequence)) {
    BackToQueue(requests_.at(*youngest));
    if (TakeBlocks(request)) return true;
  }
  return false;
}

void PrefillCore::Impl::BackToQueue(Request& request) {
  pool_.Free(*request.blocks);
  request.blocks = nullptr;
  request.ask_retry_us = request.ask_give_up_us = kNever;
  SetState(request, State::kQueued);
  LeaveFront(request);
  Arm(request);
}

// No decode room: blocks that an SP plan before it waits for must not wait with it, for that
// plan may hold the room.
void PrefillCore::Impl::Yield(Request& request) {
  if (request.sp_plan.has_value()) return;
  if (queue_.SpPlanWaitsBefore(request.sequence)) BackToQueue(request);
}

void PrefillCore::Impl::On(const PlaceDecodeReplied& event) {
  const absl::Status& status = event.reply.status;
  Request* request = FindLive(event.id, event.epoch);
  if (request == nullptr || !request->ask_calling) return;
  request->ask_calling = false;
  if (status.ok()) return Place(*request, event.reply.placed);
  if (!absl::IsResourceExhausted(status)) return End(*request, status);
  if (request->state != State::kAsking) return;  // it asks again when it has blocks again
  request->ask_retry_us = now_ + config_.retry_us;
  Arm(*request);
  Yield(*request);
}

void PrefillCore::Impl::On(const StartCalled& event) {
  const StartRequest& start = event.request;
  if (Request* request = FindLive(start.id, start.epoch); request != nullptr) {
    Place(*request, start.placed);
  } else if (const auto it = successors_.find(start.id);
             it != successors_.end() && it->second.front().epoch == start.epoch) {
    it->second.front().placed = start.placed;
  }
}

void PrefillCore::Impl::Place(Request& request, const Placed& placed) {
  if (!request.placed.endpoint.empty()) return;  // after a break it is said once more
  request.placed = placed;
  queue_.RemoveUnplaced(PlaceOf(request));
  request.ask_calling = false;
  request.ask_retry_us = request.ask_give_up_us = kNever;
  if (request.state != State::kAsking) return;
  TakesFront(request) ? OpenTransfer(request) : BeginWork(request);
}

void PrefillCore::Impl::OpenTransfer(Request& request) {
  const bool spans = request.sp_plan.has_value();
  request.writer = spans ? request.sp_plan->self : membership_.instance();
  kv_out_.Open({.id = request.spec->id,
                .epoch = request.epoch,
                .spec = request.spec,
                .endpoint = request.placed.endpoint,
                .writer = request.writer,
                .one_of_several = spans,
                .takes_blocks = TakesFront(request)},
               now_);
}

// It keeps its local blocks while it asks for another place: it is about to start.
void PrefillCore::Impl::Refused(Request& request, const absl::Status& why) {
  kv_out_.Forget(request.spec->id);
  request.refused_by = request.placed.decode;
  request.refused_why = why;
  request.placed = {};
  queue_.AddUnplaced(PlaceOf(request));
  Ask(request);
}

void PrefillCore::Impl::BeginWork(Request& request) {
  SetState(request, State::kPlaced);
  request.working = true;
  if (!request.sp_plan.has_value()) {
    batch_.Add(request.spec->id, request.sequence, PromptTokens(*request.spec), 0, request.suspect);
  }
  OpenHandoffOf(request);
}

void PrefillCore::Impl::TakeOutcomes() {
  for (const KvOut::Outcome& outcome : kv_out_.TakeOutcomes()) {
    const auto it = requests_.find(outcome.id);
    if (it == requests_.end()) continue;  // its deadline passed at the same time
    Request& request = it->second;
    switch (outcome.end) {
      case KvOut::End::kOpened:
        if (request.state == State::kAsking) BeginWork(request);
        break;
      case KvOut::End::kRefused:
        if (request.state == State::kAsking) Refused(request, outcome.status);
        break;
      case KvOut::End::kCommitted:
        Finish(request);
        break;
      case KvOut::End::kFailed:
        End(request, outcome.status);
        break;
      case KvOut::End::kStopped:
        MaybeLeave(request);
        break;
    }
  }
}

}  // namespace skein::scheduler
