// Plans that span instances: what an Assign promises, which piece is next, what a piece brings.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/vocabulary/mix64.h"
#include "scheduler/worker/prefill/prefill_impl.h"

namespace skein::scheduler {
namespace {

bool SameChunk(const PlanChunk& a, const PlanChunk& b) {
  return a.tokens == b.tokens && a.members == b.members;
}

GroupId KeyOf(RequestId id, Epoch epoch, int chunk, bool moves) {
  const auto which = static_cast<uint64_t>(chunk) * 2 + (moves ? 1 : 0);
  const uint64_t of_request = Mix64(id.router + Mix64(id.serial));
  return {Mix64(of_request + epoch.value), Mix64(Mix64(epoch.value) + of_request + which)};
}

}  // namespace

// A new registration: the orchestrator is another one, or had given this instance up. Plans that
// name the old registration and wait for a word of their planner will not hear it.
void PrefillCore::Impl::EndOrphans() {
  const auto status =
      absl::UnavailableError("the orchestrator that issued this plan is gone, or gave it up");
  std::vector<RequestId> orphans;
  for (const auto& [id, request] : requests_) {
    if (!request.sp_plan.has_value() || request.sp_plan->self == membership_.instance()) continue;
    const bool started = request.sp_plan->lead ? request.working : !request.placed.endpoint.empty();
    if (!started || !request.sp_plan->dealer.Whole()) orphans.push_back(id);
  }
  for (RequestId id : orphans) End(requests_.at(id), status);
  orphans.clear();
  for (const auto& [id, assigns] : successors_) {
    const absl::StatusOr<InstanceId> self = SelfIn(assigns.front());
    if (self.ok() && *self != membership_.instance()) orphans.push_back(id);
  }
  for (RequestId id : orphans) EndSuccessors(id, {UINT64_MAX}, status);
}

absl::StatusOr<InstanceId> PrefillCore::Impl::SelfIn(const AssignRequest& assign) const {
  for (const PlanMember& member : assign.members) {
    if (member.incarnation == membership_.identity().incarnation) return member.instance;
  }
  return absl::FailedPreconditionError("members: this instance is none of them");
}

absl::Status PrefillCore::Impl::AddSpPlan(const AssignRequest& assign, Request* request) {
  if (assign.spec->want_prompt_logprobs) {
    return absl::InvalidArgumentError("prompt_logprobs: not of a plan that spans instances");
  }
  const absl::StatusOr<InstanceId> self = SelfIn(assign);
  if (!self.ok()) return self.status();
  const DealSizes sizes{.prompt_tokens = PromptTokens(*assign.spec),
                        .block_tokens = shape_.block_tokens,
                        .rank_tokens_max = config_.batch.max_batch_tokens};
  SpPlan sp_plan(sizes, *self);
  sp_plan.slots.assign(BlocksOf(shape_, sizes.prompt_tokens), -1);
  if (absl::Status status = AddChunks(assign, &sp_plan); !status.ok()) return status;
  if (sp_plan.slots_used > pool_.Counts().total) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks: ", sp_plan.slots_used, " blocks here, of ", pool_.Counts().total));
  }
  const PlanChunk& first = assign.chunks.front();
  sp_plan.lead = assign.members[first.members.front()].instance == *self;
  sp_plan.front_chunks = static_cast<int>(assign.chunks.size());
  if (assign.from_chunk > 0) sp_plan.join_until_us = now_ + config_.join_wait_us;
  request->sp_plan = std::move(sp_plan);
  spans_[assign.sequence] = {assign.spec->id, static_cast<int>(assign.from_chunk),
                             static_cast<int>(assign.chunks.size())};
  return absl::OkStatus();
}

absl::Status PrefillCore::Impl::ExtendPlan(Request& request, const AssignRequest& assign) {
  if (request.state == State::kEnding) return absl::FailedPreconditionError("epoch: has ended");
  if (!request.sp_plan.has_value()) {
    return absl::InvalidArgumentError("members: the plan was plain");
  }
  SpPlan& sp_plan = *request.sp_plan;
  if (absl::Status status = AddChunks(assign, &sp_plan); !status.ok()) return status;
  spans_[assign.sequence] = {assign.spec->id, static_cast<int>(assign.from_chunk),
                             static_cast<int>(assign.chunks.size())};
  if (request.state != State::kQueued && !ExtendBlocks(request)) {
    absl::Status status = absl::UnavailableError("no blocks for a later chunk");
    End(request, status);
    return status;
  }
  if (request.state == State::kPlaced) OpenHandoffOf(request);
  if (assign.placed.has_value()) Place(request, *assign.placed);
  return absl::OkStatus();
}

// All or nothing: a copy takes them first.
absl::Status PrefillCore::Impl::AddChunks(const AssignRequest& assign, SpPlan* sp_plan) const {
  if (assign.from_chunk >= assign.chunks.size()) {
    return absl::InvalidArgumentError("chunks: the Assign adds none");
  }
  SpPlan copy = *sp_plan;
  if (assign.members.size() > copy.members.size()) copy.members = assign.members;
  for (size_t i = 0; i < assign.chunks.size(); ++i) {
    if (absl::Status status = AddChunk(assign, i, &copy); !status.ok()) return status;
  }
  const std::vector<InstanceId>& last = copy.dealer.all_chunks().back().members;
  if (std::find(last.begin(), last.end(), copy.self) == last.end()) {
    return absl::InvalidArgumentError("chunks: this instance takes part in none");
  }
  copy.assigns.push_back(assign.sequence);
  GiveSlots(&copy);
  copy.later_blocks = BlocksToFill(copy.ahead, copy.self);
  if (!copy.next.has_value()) FindNext(&copy);
  *sp_plan = std::move(copy);
  return absl::OkStatus();
}

absl::Status PrefillCore::Impl::AddChunk(const AssignRequest& assign, size_t index,
                                         SpPlan* sp_plan) const {
  const PlanChunk& chunk = assign.chunks[index];
  if (index < sp_plan->chunks.size()) {
    if (SameChunk(chunk, sp_plan->chunks[index])) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("chunks: chunk ", index, " was another"));
  }
  DealtChunk dealt{.tokens = chunk.tokens, .members = {}};
  for (uint32_t member : chunk.members) {
    if (member >= assign.members.size()) {
      return absl::InvalidArgumentError(absl::StrCat("chunks: member ", member, " of chunk ", index,
                                                     " of ", assign.members.size()));
    }
    dealt.members.push_back(assign.members[member].instance);
  }
  if (absl::Status status = sp_plan->dealer.AddChunk(dealt); !status.ok()) return status;
  sp_plan->chunks.push_back(chunk);
  return sp_plan->ahead.AddChunk(dealt);
}

// A slot for each block that this instance will compute or receive, in the order of the pieces.
void PrefillCore::Impl::GiveSlots(SpPlan* sp_plan) const {
  const auto give = [sp_plan](int32_t block) {
    int32_t& slot = sp_plan->slots[block];
    SKEIN_CHECK_MSG(slot < 0, "a block comes here twice");
    slot = static_cast<int32_t>(sp_plan->slots_used++);
  };
  while (const std::optional<Piece> piece = sp_plan->ahead.Next()) {
    const int rank = piece->RankOf(sp_plan->self);
    if (rank < 0) continue;
    for (const Move& move : piece->moves) {
      if (move.to == rank) std::for_each(move.blocks.begin(), move.blocks.end(), give);
    }
    for (int32_t block : BlocksOfSpans(piece->spans[rank], shape_.block_tokens)) {
      give(block);
      sp_plan->share.push_back(block);
    }
  }
}

void PrefillCore::Impl::FindNext(SpPlan* sp_plan) const {
  do {
    sp_plan->next = sp_plan->dealer.Next();
  } while (sp_plan->next.has_value() && sp_plan->next->RankOf(sp_plan->self) < 0);
}

// A plan without its last chunks holds blocks for the whole rest at once: if it asked for more
// while it holds some, two such plans could wait for each other. Asked at every event while the
// plan is first in the queue, so it only adds up what AddChunks has computed.
int64_t PrefillCore::Impl::BlocksWanted(const Request& request) const {
  if (!request.sp_plan.has_value()) return BlocksOf(shape_, PromptTokens(*request.spec));
  const SpPlan& sp_plan = *request.sp_plan;
  return std::max(sp_plan.slots_used,
                  std::min(sp_plan.slots_used + sp_plan.later_blocks, pool_.Counts().total));
}

bool PrefillCore::Impl::ExtendBlocks(Request& request) {
  const int64_t more = request.sp_plan->slots_used - static_cast<int64_t>(request.blocks->size());
  if (more <= 0) return true;
  const absl::StatusOr<BlockTable> added = pool_.Allocate(more);
  if (!added.ok()) return false;
  auto blocks = std::make_shared<std::vector<BlockId>>(*request.blocks);
  blocks->insert(blocks->end(), (*added)->begin(), (*added)->end());
  request.blocks = std::move(blocks);
  return true;
}

std::vector<HandoffBlock> PrefillCore::Impl::NewPuts(Request& request) const {
  std::vector<HandoffBlock> puts;
  if (!request.sp_plan.has_value()) {
    const int64_t count = BlocksOf(shape_, PromptTokens(*request.spec));
    for (int32_t i = 0; i < count; ++i) puts.push_back({i, (*request.blocks)[i]});
    return puts;
  }
  SpPlan& sp_plan = *request.sp_plan;
  while (sp_plan.share_opened < sp_plan.share.size()) {
    const int32_t block = sp_plan.share[sp_plan.share_opened++];
    puts.push_back({block, (*request.blocks)[sp_plan.slots[block]]});
  }
  return puts;
}

// Tells the handoff which blocks are computed here, as far as that is known. A member that does not
// lead opens its transfer when the first are.
void PrefillCore::Impl::OpenHandoffOf(Request& request) {
  const RequestId id = request.spec->id;
  const bool spans = request.sp_plan.has_value();
  const bool more = spans && !request.sp_plan->dealer.Whole();
  std::vector<HandoffBlock> puts = NewPuts(request);
  if (kv_out_.Begun(id)) return kv_out_.AddBlocks(id, std::move(puts), more);
  if (puts.empty()) return;
  if (!kv_out_.Has(id)) OpenTransfer(request);
  kv_out_.Begin(id, std::move(puts), more, now_);
}

// The next ring piece of this instance, if it can run now; `sequence` is then its place.
PrefillCore::Impl::Request* PrefillCore::Impl::EnterablePiece(PlanSequence* sequence) {
  while (!spans_.empty()) {
    const auto& [place, span] = *spans_.begin();
    Request& request = requests_.at(span.id);
    const std::optional<Piece>& next = request.sp_plan->next;
    if (!next.has_value() || next->chunk >= span.to) {  // all of it was computed
      spans_.erase(spans_.begin());
      continue;
    }
    const bool enterable = next->chunk >= span.from && request.state == State::kPlaced;
    if (!enterable) return nullptr;
    *sequence = place;
    return &request;
  }
  return nullptr;
}

void PrefillCore::Impl::StartPiece(Request& request) {
  Started(request);
  SpPlan& sp_plan = *request.sp_plan;
  auto part = std::make_shared<const RingPart>(PartOf(request));
  const std::vector<TokenSpan>& spans = part->piece.spans[part->rank];
  auto blocks = std::make_shared<std::vector<BlockId>>();
  for (int32_t block : BlocksOfSpans(spans, shape_.block_tokens)) {
    blocks->push_back((*request.blocks)[sp_plan.slots[block]]);
  }
  int64_t count = 0;
  for (const TokenSpan& span : spans) count += span.count;
  if (sp_plan.chunk_since_us == kNever) {
    sp_plan.chunk_since_us = now_;
    TellProgress(request);
  }
  const bool sample = part->piece.sampler == part->rank && request.spec->max_tokens > 0;
  piece_ = request.spec->id;
  StepSequence sequence{.id = request.spec->id,
                        .epoch = request.epoch,
                        .spec = request.spec,
                        .position = spans.empty() ? 0 : spans.front().position,
                        .count = count,
                        .blocks = std::move(blocks),
                        .sample = sample,
                        .output = nullptr,
                        .ring = std::move(part)};
  effects_.push_back(steps_.Launch({std::move(sequence)}, now_));
}

void PrefillCore::Impl::TellProgress(const Request& request) {
  membership_.Holds(
      {.id = request.spec->id, .epoch = request.epoch, .chunks_done = request.sp_plan->chunks_done},
      request.sp_plan->chunk_since_us);
}

RingPart PrefillCore::Impl::PartOf(const Request& request) const {
  const SpPlan& sp_plan = *request.sp_plan;
  const RequestId id = request.spec->id;
  RingPart part{.piece = *sp_plan.next, .rank = sp_plan.next->RankOf(sp_plan.self)};
  const Piece& piece = part.piece;
  const auto local = [&](const std::vector<int32_t>& blocks, std::vector<BlockId>* out) {
    for (int32_t block : blocks) out->push_back((*request.blocks)[sp_plan.slots[block]]);
  };
  part.comm_addresses = CommAddresses(sp_plan, piece.chunk);
  local(piece.history[part.rank], &part.history);
  if (!piece.moves.empty()) {
    part.send.resize(piece.members.size());
    part.receive.resize(piece.members.size());
  }
  for (const Move& move : piece.moves) {
    if (move.from == part.rank) local(move.blocks, &part.send[move.to]);
    if (move.to == part.rank) local(move.blocks, &part.receive[move.from]);
  }
  for (size_t rank = 0; rank < piece.members.size(); ++rank) {
    part.history_tokens.push_back(static_cast<int64_t>(piece.history[rank].size()) *
                                  shape_.block_tokens);
    for (const TokenSpan& span : piece.spans[rank]) {
      part.token_end = std::max(part.token_end, span.position + span.count);
    }
  }
  part.deadline_us = std::min(now_ + config_.ring_step_us, request.deadline_us);
  part.group = KeyOf(id, request.epoch, piece.chunk, false);
  part.moves_group = KeyOf(id, request.epoch, piece.chunk, true);
  return part;
}

std::vector<std::string> PrefillCore::Impl::CommAddresses(const SpPlan& sp_plan, int chunk) {
  std::vector<std::string> addresses;
  for (uint32_t member : sp_plan.chunks[chunk].members) {
    addresses.push_back(sp_plan.members[member].comm_address);
  }
  return addresses;
}

// The request ends here. The others may be in its next piece already, or will come; who joins later
// may wait in the group of a later chunk.
void PrefillCore::Impl::LeaveOthers(const Request& request) {
  const RequestId id = request.spec->id;
  const bool in_flight = piece_ == id;
  if (in_flight) {
    effects_.push_back(AbortStep{steps_.number()});
    steps_.Abort(now_);
  }
  if (!request.sp_plan.has_value() || !request.sp_plan->next.has_value()) return;
  const SpPlan& sp_plan = *request.sp_plan;
  const std::vector<DealtChunk>& chunks = sp_plan.dealer.all_chunks();
  for (int k = sp_plan.next->chunk + (in_flight ? 1 : 0); k < sp_plan.dealer.chunks(); ++k) {
    const std::vector<InstanceId>& members = chunks[k].members;
    if (members.size() == 1) continue;
    const auto self = std::find(members.begin(), members.end(), sp_plan.self);
    effects_.push_back(BreakGroup{KeyOf(id, request.epoch, k, false),
                                  static_cast<int>(self - members.begin()),
                                  CommAddresses(sp_plan, k)});
  }
}

void PrefillCore::Impl::PieceDone(const StepLoop::Ended& ended,
                                  const std::vector<StepResult>& results) {
  Request& request = requests_.at(*std::exchange(piece_, std::nullopt));
  if (request.state == State::kEnding) {
    MaybeLeave(request);
  } else if (ended.status.ok()) {
    TakePiece(request, ended.ran.front(), results.front());
  } else {
    End(request, ended.status);
  }
}

void PrefillCore::Impl::TakePiece(Request& request, const StepSequence& ran,
                                  const StepResult& result) {
  SpPlan& sp_plan = *request.sp_plan;
  if (!result.status.ok()) {
    // The others may still be at the end of this step, which is no failure of theirs.
    FindNext(&sp_plan);
    return End(request, result.status);
  }
  prompt_tokens_ += ran.count;
  const Piece& piece = ran.ring->piece;
  sp_plan.blocks_done += static_cast<int64_t>(ran.blocks->size());
  if (ran.sample) {
    request.has_token = true;
    request.token = result.token;
    request.payload = result.payload;
  }
  if (piece.ends_chunk) {
    sp_plan.chunks_done = static_cast<uint32_t>(piece.chunk + 1);
    sp_plan.chunk_since_us = kNever;
    TellProgress(request);
    membership_.ReportSoon();
    if (piece.chunk + 1 >= sp_plan.front_chunks) LeaveFront(request);
  }
  FindNext(&sp_plan);
  if (piece.last) Computed(request);
}

absl::Status PrefillCore::Impl::CheckSpPlans() const {
  for (const auto& [sequence, span] : spans_) {
    const auto it = requests_.find(span.id);
    if (it == requests_.end() || !it->second.sp_plan.has_value() ||
        it->second.state == State::kEnding) {
      return absl::InternalError(
          absl::StrCat("PrefillCore 7: sequence ", sequence.value, " is nobody's"));
    }
  }
  for (const auto& [id, request] : requests_) {
    if (!request.sp_plan.has_value()) continue;
    const SpPlan& sp_plan = *request.sp_plan;
    const bool held = request.state == State::kAsking || request.state == State::kPlaced;
    if (held && sp_plan.slots_used > static_cast<int64_t>(request.blocks->size())) {
      return absl::InternalError(absl::StrCat("PrefillCore 7: ", ToString(id), " has slots for ",
                                              request.blocks->size(), " of ", sp_plan.slots_used,
                                              " blocks"));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
