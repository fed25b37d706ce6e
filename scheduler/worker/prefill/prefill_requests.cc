#include "scheduler/worker/prefill/prefill_requests.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

PrefillRequest::Standing PrefillRequest::standing() const {
  const bool ahead = OpensTransfer() && !IsOpened();
  switch (phase) {
    case Phase::kQueued:
      return Standing::kQueued;
    case Phase::kHolding:
      return Standing::kAsking;
    case Phase::kComputing:
      return ahead ? Standing::kComputingAhead : Standing::kComputing;
    case Phase::kYielding:
      return Standing::kYielding;
    case Phase::kComputed:
      return ahead ? Standing::kComputed : Standing::kCommitting;
    case Phase::kEnding:
      break;
  }
  return Standing::kEnding;
}

PrefillRequest& PrefillRequests::Add(PrefillRequest request) {
  const RequestId id = request.id();
  const auto [it, added] = requests_.emplace(id, std::move(request));
  SKEIN_CHECK(added && it->second.phase == Phase::kQueued);
  CountIn(it->second, 1);
  Wait(it->second);
  timers_.Set(id, DeadlineOf(it->second));
  return it->second;
}

void PrefillRequests::Erase(RequestId id) {
  FreeTable(requests_.at(id).blocks);
  Remove(id);
}

void PrefillRequests::EraseAndKeep(RequestId id, TimeUs until_us) {
  const PrefillRequest& request = requests_.at(id);
  SKEIN_CHECK(request.IsPlain() && request.blocks != nullptr);
  FreeTable(kept_.Keep(request.spec, request.blocks, until_us));
  Remove(id);
}

void PrefillRequests::Remove(RequestId id) {
  const PrefillRequest& request = requests_.at(id);
  queue_.StopWaiting(PlaceOf(request));
  queue_.RemoveUnplaced(PlaceOf(request));
  queue_.LeaveFront(id);
  CountIn(request, -1);
  timers_.Remove(id);
  requests_.erase(id);
}

PrefillRequest* PrefillRequests::Find(RequestId id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : &it->second;
}

const PrefillRequest* PrefillRequests::Find(RequestId id) const {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : &it->second;
}

PrefillRequest* PrefillRequests::FindLive(RequestId id, Epoch epoch) {
  PrefillRequest* request = Find(id);
  const bool live = request != nullptr && request->epoch == epoch && !request->IsEnding();
  return live ? request : nullptr;
}

// Beginning later than its goal it misses that: its TTFT counts since before it came here.
void PrefillRequests::Wait(const PrefillRequest& request) {
  const TimeUs goal_us = request.spec->ttft_goal_us;
  queue_.Wait(PlaceOf(request), goal_us > 0 ? request.arrived_us + goal_us : kNever);
}

PrefillRequest* PrefillRequests::Admit(std::vector<RequestId>* gave_back, TimeUs now) {
  std::optional<RequestId> next = queue_.First(now);
  if (!next.has_value()) return nullptr;
  if (!GetsRoom(requests_.at(*next), gave_back)) {
    // SP plans in front of it may have the room, and wait for a plain prompt that it goes before.
    const std::optional<RequestId> first = std::exchange(next, queue_.OldestBeforeUnplaced());
    if (!next.has_value() || next == first) return nullptr;
    if (!GetsRoom(requests_.at(*next), gave_back)) return nullptr;
  }
  PrefillRequest& request = requests_.at(*next);
  Enter(request, request.IsPlain() ? Phase::kComputing : Phase::kHolding, request.transfer);
  const bool charged = std::exchange(request.charged, true);
  queue_.Serve(PlaceOf(request), charged ? 0 : PromptTokens(*request.spec));
  if (!request.IsPlaced()) queue_.AddUnplaced(PlaceOf(request));
  if (request.OpensTransfer()) {
    queue_.EnterFront(request.id(), request.spec->tenant, PromptTokens(*request.spec));
  }
  timers_.Set(*next, DeadlineOf(request));
  return &request;
}

bool PrefillRequests::GetsRoom(PrefillRequest& request, std::vector<RequestId>* gave_back) {
  return TakeRoom(request) || TakeRoomOfYounger(request, gave_back);
}

bool PrefillRequests::TakeRoom(PrefillRequest& request) {
  if (request.OpensTransfer() && !queue_.MayEnterFront(request.spec->tenant)) return false;
  if (request.blocks_wanted == 0) {  // of a short chunk a member may get nothing
    request.blocks = std::make_shared<const std::vector<BlockId>>();
    return true;
  }
  // Logprobs of a prompt come from the steps that compute it.
  const bool may_reuse = request.IsPlain() && !request.spec->want_prompt_logprobs;
  const BlockTable kept = may_reuse ? kept_.Find(*request.spec) : nullptr;
  if (kept == nullptr) FreeTable(kept_.Forget(request.id()));  // of no use to any attempt after it
  absl::StatusOr<BlockTable> blocks =
      ExtendTable(kept, request.blocks_wanted, kept != nullptr ? request.id() : RequestId{});
  if (!blocks.ok()) return false;
  if (kept != nullptr) {
    request.kept_tokens = kept_.TokensFor(*request.spec);
    kept_.Take(*request.spec);
  }
  request.blocks = *std::move(blocks);
  return true;
}

absl::StatusOr<BlockTable> PrefillRequests::ExtendTable(const BlockTable& table, int64_t count,
                                                        RequestId but) {
  const int64_t has = table == nullptr ? 0 : static_cast<int64_t>(table->size());
  const bool may_help = count - has <= pool_.Counts().free + kept_.blocks();
  while (true) {
    absl::StatusOr<BlockTable> extended = pool_.Extend(table, count);
    if (extended.ok() || !may_help) return extended;
    const BlockTable oldest = kept_.GiveUpOldest(but);
    if (oldest == nullptr) return extended.status();
    pool_.Free(*oldest);
  }
}

void PrefillRequests::GiveUpKept(TimeUs now) {
  while (const BlockTable overdue = kept_.TakeOverdue(now)) FreeTable(overdue);
}

BlockCounts PrefillRequests::blocks() const {
  BlockCounts counts = pool_.Counts();
  counts.held -= kept_.blocks();
  counts.cached += kept_.blocks();
  return counts;
}

// Younger SP plans may have taken the last blocks, or all of the front, while this request waited
// for the end of its older epoch. They are placed only after this request has its decode room: as
// long as they are not, nothing is in their blocks.
bool PrefillRequests::TakeRoomOfYounger(PrefillRequest& request,
                                        std::vector<RequestId>* gave_back) {
  while (const std::optional<RequestId> youngest = queue_.YoungestUnplaced(request.sequence)) {
    BackToQueue(requests_.at(*youngest));
    gave_back->push_back(*youngest);
    if (TakeRoom(request)) return true;
  }
  return false;
}

void PrefillRequests::BackToQueue(PrefillRequest& request) {
  SKEIN_CHECK(request.blocks != nullptr && !request.IsOpened() && !request.IsEnding());
  pool_.Free(*request.blocks);
  request.blocks = nullptr;
  request.kept_tokens = 0;
  request.computed = false;
  request.started_us = kNever;
  request.result = {};
  Enter(request, Phase::kQueued, request.transfer);
  queue_.RemoveUnplaced(PlaceOf(request));
  queue_.LeaveFront(request.id());
  Wait(request);
  timers_.Set(request.id(), DeadlineOf(request));
}

bool PrefillRequests::Extend(PrefillRequest& request, int64_t wanted) {
  absl::StatusOr<BlockTable> blocks = ExtendTable(request.blocks, wanted, RequestId{});
  if (!blocks.ok()) return false;
  request.blocks = *std::move(blocks);
  return true;
}

void PrefillRequests::SetPlaced(PrefillRequest& request, const Placed& placed) {
  SKEIN_CHECK(!request.IsOpened());
  request.placed = placed;
  Enter(request, request.phase, Transfer::kPlaced);
  queue_.RemoveUnplaced(PlaceOf(request));
}

void PrefillRequests::ClearPlaced(PrefillRequest& request) {
  SKEIN_CHECK(request.blocks != nullptr && !request.IsOpened() && !request.IsEnding());
  request.placed = {};
  Enter(request, request.phase, Transfer::kUnplaced);
  queue_.AddUnplaced(PlaceOf(request));
}

void PrefillRequests::SetOpened(PrefillRequest& request) {
  SKEIN_CHECK(request.blocks != nullptr && !request.IsEnding());
  Enter(request, request.phase, Transfer::kOpened);
  if (request.phase == Phase::kComputed) queue_.LeaveFront(request.id());
}

void PrefillRequests::SetPhase(PrefillRequest& request, Phase phase) {
  SKEIN_CHECK(phase > Phase::kHolding);
  queue_.StopWaiting(PlaceOf(request));
  queue_.RemoveUnplaced(PlaceOf(request));
  Enter(request, phase, request.transfer);
  const bool leaves = phase == Phase::kEnding || (phase == Phase::kComputed && request.IsOpened());
  if (leaves) queue_.LeaveFront(request.id());
  timers_.Set(request.id(), DeadlineOf(request));
}

TimeUs PrefillRequests::DeadlineOf(const PrefillRequest& request) {
  if (request.IsEnding()) return kNever;
  return request.phase == Phase::kQueued ? std::min(request.deadline_us, request.join_until_us)
                                         : request.deadline_us;
}

std::optional<RequestId> PrefillRequests::TakeOverdue(TimeUs now) { return timers_.TakeDue(now); }

void PrefillRequests::Enter(PrefillRequest& request, Phase phase, Transfer transfer) {
  CountIn(request, -1);
  request.phase = phase;
  request.transfer = transfer;
  CountIn(request, 1);
}

void PrefillRequests::CountIn(const PrefillRequest& request, int64_t times) {
  count_.by_standing[static_cast<size_t>(request.standing())] += times;
  const bool queued = request.phase == Phase::kQueued && request.IsPlain();
  if (queued) count_.plain_tokens += times * PromptTokens(*request.spec);
}

std::string_view PrefillRequests::NameOf(RequestId id) const {
  static constexpr std::array<std::string_view, PrefillRequest::kStandings> kNames = {
      "queued",   "asking",   "computing-ahead", "computing",
      "yielding", "computed", "committing",      "ending"};
  const PrefillRequest* request = Find(id);
  return request == nullptr ? "" : kNames[static_cast<size_t>(request->standing())];
}

absl::Status PrefillRequests::CheckInvariants() const {
  if (absl::Status status = pool_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = queue_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = kept_.CheckInvariants(); !status.ok()) return status;
  int64_t blocks = kept_.blocks();
  size_t queued = 0;
  size_t in_front = 0;
  Count count;
  for (const auto& [id, request] : requests_) {
    ++count.by_standing[static_cast<size_t>(request.standing())];
    const bool plain_queued = request.phase == Phase::kQueued && request.IsPlain();
    if (plain_queued) count.plain_tokens += PromptTokens(*request.spec);
    if (request.blocks != nullptr) blocks += static_cast<int64_t>(request.blocks->size());
    queued += request.phase == Phase::kQueued;
    in_front += queue_.InFront(id);
    if (absl::Status status = CheckStates(request); !status.ok()) return status;
    if (DeadlineOf(request) < timers_.Of(id)) {
      return absl::InternalError(
          absl::StrCat("PrefillCore 6: ", ToString(id), " is due before its timer"));
    }
  }
  if (blocks != pool_.Counts().held) {
    return absl::InternalError(absl::StrCat("PrefillCore 1: ", blocks, " blocks in tables, ",
                                            pool_.Counts().held, " held"));
  }
  if (count != count_) {
    return absl::InternalError("PrefillCore 6: requests are miscounted");
  }
  if (in_front != queue_.front()) {
    return absl::InternalError(
        absl::StrCat("PrefillCore 6: ", queue_.front(), " counted in front, ", in_front, " found"));
  }
  if (queued != queue_.waiting()) {
    return absl::InternalError(absl::StrCat("PrefillCore 3: ", queue_.waiting(),
                                            " counted in the queue, ", queued, " found"));
  }
  return absl::OkStatus();
}

// A plain prompt is in front exactly from when it gets blocks until it is computed and has a grant;
// the lead of an SP plan may leave earlier, when the chunks of its first Assign are computed.
absl::Status PrefillRequests::CheckStates(const PrefillRequest& request) const {
  const auto violated = [&](int number, const char* what) {
    return absl::InternalError(
        absl::StrCat("PrefillCore ", number, ": ", ToString(request.id()), what));
  };
  const Standing standing = request.standing();
  if (standing == Standing::kQueued && request.IsOpened()) {
    return violated(3, " has opened its transfer without blocks");
  }
  if (standing == Standing::kComputingAhead && !request.IsPlain()) {
    return violated(3, " computes, but the transfer of its SP plan is not open");
  }
  const bool may = standing != Standing::kQueued && standing != Standing::kCommitting &&
                   standing != Standing::kEnding;
  const bool must = may && request.IsPlain();
  const bool is = queue_.InFront(request.id());
  if (is && !may) return violated(6, " is in front although it is queued, committing or ending");
  if (!is && must) return violated(6, " computes or waits for a grant, but is not in front");
  return absl::OkStatus();
}

}  // namespace skein::scheduler
