#include "scheduler/worker/group/group_planner.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// Its last token has been sampled, or will be by a committed step.
bool IsWhole(const GroupBatch::Member& member) {
  return member.output_tokens >= member.spec->max_tokens;
}

}  // namespace

GroupPlanner::GroupPlanner(const GroupPlannerConfig& config)
    : config_(config),
      share_(config.own_share),
      told_free_(static_cast<size_t>(config.ranks), config.total_blocks),
      counted_(static_cast<size_t>(config.ranks), 0),
      told_own_(static_cast<size_t>(config.ranks), 0) {}

void GroupPlanner::Add(RequestId id, Epoch epoch, int32_t priority, TimeUs arrived_us,
                       int64_t tokens, int64_t kv_tokens) {
  const Key key(id, epoch);
  const Seniority seniority{-static_cast<int64_t>(priority), arrived_us, key};
  SKEIN_CHECK_MSG(seniority_.emplace(key, seniority).second, "a sequence is added once");
  SKEIN_CHECK(kv_tokens < tokens);
  if (kv_tokens == 0) {
    queue_.emplace(seniority, tokens);
  } else {
    with_kv_.emplace(
        seniority,
        Row{.kv_tokens = kv_tokens, .lacks = tokens - kv_tokens, .blocks = BlocksOf(kv_tokens)});
  }
}

void GroupPlanner::Remove(RequestId id, Epoch epoch) {
  if (seniority_.contains({id, epoch})) ended_.emplace(id, epoch);
}

std::vector<std::pair<RequestId, Epoch>> GroupPlanner::TakeWithdrawn() {
  std::vector<Key> withdrawn;
  if (proposed_.has_value()) return withdrawn;
  for (auto key = ended_.begin(); key != ended_.end();) {
    const Seniority& seniority = seniority_.at(*key);
    if (queue_.erase(seniority) + with_kv_.erase(seniority) == 0) {
      ++key;
      continue;
    }
    withdrawn.push_back(*key);
    seniority_.erase(*key);
    key = ended_.erase(key);
  }
  return withdrawn;
}

// ---- what the ranks tell ----

void GroupPlanner::Committed(uint64_t step) {
  SKEIN_CHECK(proposed_.has_value());
  for (const Seniority& added : proposed_->added) {
    queue_.erase(added);
    with_kv_.erase(added);
  }
  yielded_.insert(proposed_->yielding.begin(), proposed_->yielding.end());
  for (const Key& removed : proposed_->removed) {
    seniority_.erase(removed);
    ended_.erase(removed);
    yielded_.erase(removed);
  }
  wanted_blocks_ = proposed_->plan.wanted_blocks;
  taken_[step] = proposed_->taken;
  preemptions_ += proposed_->plan.preempted.size();
  proposed_.reset();
  last_step_ = step;
}

void GroupPlanner::Refused(const StepRefused& refused) {
  // Other ranks may have heard it: the next plan takes it back.
  wanted_blocks_ = std::max(wanted_blocks_, proposed_->plan.wanted_blocks);
  proposed_.reset();
  if (refused.rank == 0) return;
  const auto rank = static_cast<size_t>(refused.rank);
  told_free_[rank] = refused.free_blocks;
  counted_[rank] = last_step_;
}

void GroupPlanner::Completed(const StepCompleted& completed) {
  told_free_ = completed.free_blocks;
  counted_ = completed.counted;
  told_own_ = completed.own_tokens;
  told_own_waits_ = completed.own_waits;
  taken_.erase(taken_.begin(), taken_.upper_bound(completed.step));
}

void GroupPlanner::ToldOwn(int rank, int64_t own_tokens) {
  told_own_[static_cast<size_t>(rank)] = own_tokens;
}

int64_t GroupPlanner::FewestFree(const GroupBatch& batch) const {
  int64_t fewest = batch.free_blocks();
  for (size_t rank = 1; rank < told_free_.size(); ++rank) {
    int64_t free = told_free_[rank];
    for (auto it = taken_.upper_bound(counted_[rank]); it != taken_.end(); ++it) free -= it->second;
    fewest = std::min(fewest, free);
  }
  return std::max<int64_t>(fewest, 0);
}

// As RunningBatch's; nobody grows beside one that is alone.
int64_t GroupPlanner::HeadroomFor(int64_t running) const {
  return std::min(2 * running, config_.total_blocks / 4);
}

int64_t GroupPlanner::Headroom(const Rows& rows, const Draft& draft) const {
  const auto runs = [](const auto& one) { return one.second.kv_tokens > 0; };
  return HeadroomFor(std::count_if(rows.begin(), rows.end(), runs) +
                     static_cast<int64_t>(draft.added.size()));
}

absl::Status GroupPlanner::HasRoom(const GroupBatch& batch, int64_t blocks) const {
  Draft unused;
  const Rows rows = LiveRows(batch, &unused);
  int64_t claimed = 0;
  for (const auto& [seniority, row] : rows) claimed += Claim(row);
  for (const auto& [seniority, row] : with_kv_) claimed += Claim(row);
  for (const auto& [seniority, tokens] : queue_) claimed += BlocksOf(tokens);
  const int64_t kept = claimed + HeadroomFor(static_cast<int64_t>(seniority_.size()));
  // Without sequences no step runs, so what the others told last may be long past: they look
  // themselves.
  const int64_t free = Empty() ? batch.free_blocks() : FewestFree(batch);
  if (blocks + kept <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("KV blocks: ", blocks, " wanted at each rank of the bound group, ", free,
                   " free, ", kept, " of them for its sequences"));
}

// ---- a plan ----

std::optional<FeedPlan> GroupPlanner::Next(const GroupBatch& batch, int64_t own_tokens,
                                           bool own_waits) {
  SKEIN_CHECK(!proposed_.has_value());
  Draft draft;
  draft.free = FewestFree(batch);
  Rows rows = LiveRows(batch, &draft);
  const int64_t own = std::accumulate(told_own_.begin(), told_own_.end(), own_tokens);
  const int64_t tokens = TokensOf(rows);
  const bool idle = own == 0 && tokens == 0 && draft.removed.empty();
  if (idle && wanted_blocks_ == 0) return std::nullopt;
  const bool runs_own = own > 0 && (own_pauses_ ? tokens == 0 : share_.NextIsOwn(own, tokens));
  if (!runs_own) {
    Preempt(/*own_run=*/own > 0, &rows, &draft);
    RunDecode(rows, &draft);
    RunPrompts(rows, &draft);
    EnterWithKv(&draft);
    Enter(rows, !own_pauses_ && (own_waits || told_own_waits_), &draft);
  }
  draft.plan.wanted_blocks = Wanted(draft, tokens, runs_own);
  if (draft.tokens > 0 || !draft.plan.preempted.empty()) {
    draft.plan.mode = draft.tokens > config_.shift_tokens ? config_.base : config_.full_tp;
  } else {
    draft.plan.slices.clear();
    draft.plan.own_tokens = own > 0 ? config_.batch.max_batch_tokens : 0;
  }
  return Propose(std::move(draft));
}

// An own step is planned without looking at the group's sequences: they want what they wanted.
int64_t GroupPlanner::Wanted(const Draft& draft, int64_t tokens, bool runs_own) const {
  if (tokens == 0) return 0;
  if (!yielded_.empty() || !draft.yielding.empty()) return config_.total_blocks;
  return runs_own ? wanted_blocks_ : draft.claimed + draft.wanted;
}

FeedPlan GroupPlanner::Ask() { return Propose({}); }

FeedPlan GroupPlanner::Propose(Draft draft) {
  proposed_ = std::move(draft);
  return proposed_->plan;
}

// In the order of seniority. What has ended is removed; what only waits to be told so does not run.
GroupPlanner::Rows GroupPlanner::LiveRows(const GroupBatch& batch, Draft* draft) const {
  Rows rows;
  for (const GroupBatch::Member& member : batch.Members()) {
    const Key key(member.spec->id, member.epoch);
    if (ended_.contains(key)) {
      draft->plan.removed.push_back(member.handle);
      draft->removed.push_back(key);
    } else if (IsWhole(member)) {
      draft->plan.slices.push_back({member.handle, 0});
    } else {
      rows[seniority_.at(key)] = {member.handle, member.kv_tokens, member.Lacks(), member.blocks};
    }
  }
  return rows;
}

int64_t GroupPlanner::TokensOf(const Rows& rows) const {
  int64_t tokens = 0;
  for (const auto& [seniority, row] : rows) tokens += row.lacks;
  for (const auto& [seniority, row] : with_kv_) {
    if (!ended_.contains(seniority.key)) tokens += row.lacks;
  }
  for (const auto& [seniority, waiting] : queue_) {
    if (tokens >= config_.batch.max_batch_tokens) break;
    if (!ended_.contains(seniority.key)) tokens += waiting;
  }
  return std::min(tokens, config_.batch.max_batch_tokens);
}

// The last ones give their blocks up until the claims of those in front fit. What they had is free
// when the step begins: the next plan may use it.
void GroupPlanner::Preempt(bool own_run, Rows* rows, Draft* draft) const {
  int64_t claimed = 0, running = 0;
  for (const auto& [seniority, row] : *rows) {
    if (row.kv_tokens == 0) continue;
    claimed += Claim(row);
    ++running;
  }
  int64_t coming = 0;
  for (auto it = rows->end(); it != rows->begin() && claimed > draft->free + coming;) {
    const Row row = (--it)->second;
    if (row.kv_tokens == 0) continue;
    if (running == 1 && own_run) return;
    if (running == 1) draft->yielding.push_back(it->first.key);
    draft->plan.preempted.push_back(row.handle);
    claimed -= Claim(row);
    coming += row.blocks;
    --running;
    it = rows->erase(it);
  }
}

// The handles that decode: all, or in turn as many as the step has room for.
std::set<uint32_t> GroupPlanner::DecodeTurn(const Rows& rows) {
  std::set<uint32_t> decoding;
  bool prompts = !queue_.empty();
  for (const auto& [seniority, row] : rows) {
    if (row.Decodes()) decoding.insert(row.handle);
    prompts |= !row.Decodes();
  }
  const BatchLimits& limits = config_.batch;
  const int64_t reserved = prompts ? limits.min_slice_tokens : 0;
  const auto most = static_cast<size_t>(
      std::clamp<int64_t>(limits.max_batch_tokens - reserved, 1, limits.max_batch_sequences));
  if (decoding.size() <= most) return decoding;
  std::set<uint32_t> turn;
  for (auto next = decoding.upper_bound(last_run_); turn.size() < most; ++next) {
    if (next == decoding.end()) next = decoding.begin();
    turn.insert(last_run_ = *next);
  }
  return turn;
}

// Seniority decides who gets the blocks.
void GroupPlanner::RunDecode(const Rows& rows, Draft* draft) {
  const std::set<uint32_t> turn = DecodeTurn(rows);
  for (const auto& [seniority, row] : rows) {
    if (!row.Decodes()) continue;
    const int64_t blocks = Claim(row);
    if (!turn.contains(row.handle) || blocks > draft->free) {
      draft->plan.slices.push_back({row.handle, 0});
      if (turn.contains(row.handle)) draft->wanted += blocks;
      continue;
    }
    draft->free -= blocks;
    draft->taken += blocks;
    ++draft->tokens;
    ++draft->sequences;
  }
}

void GroupPlanner::RunPrompts(const Rows& rows, Draft* draft) const {
  for (const auto& [seniority, row] : rows) {
    if (row.kv_tokens == 0 || row.Decodes()) continue;
    if (!Slice(row, draft)) draft->claimed += Claim(row);
  }
}

// As much of it as the step and the blocks have room for. False: nothing.
bool GroupPlanner::Slice(const Row& row, Draft* draft) const {
  const BatchLimits& limits = config_.batch;
  const int64_t room = (row.blocks + draft->free) * config_.tokens_per_block - row.kv_tokens;
  const int64_t count =
      std::min({row.lacks, limits.max_slice_tokens, room, limits.max_batch_tokens - draft->tokens});
  if (count <= 0 || draft->sequences >= limits.max_batch_sequences) return false;
  const int64_t blocks = BlocksOf(row.kv_tokens + count) - row.blocks;
  draft->plan.slices.push_back({row.handle, count});
  draft->free -= blocks;
  draft->taken += blocks;
  draft->claimed += Claim(row) - blocks;
  draft->tokens += count;
  ++draft->sequences;
  return true;
}

bool GroupPlanner::EnterOne(const Row& row, int64_t headroom, Draft* draft) const {
  if (Claim(row) + draft->claimed + headroom <= draft->free) return Slice(row, draft);
  draft->wanted += Claim(row) + headroom;
  return false;
}

// They run at once if the step and the blocks have room.
void GroupPlanner::EnterWithKv(Draft* draft) {
  for (const auto& [seniority, waiting] : with_kv_) {
    if (ended_.contains(seniority.key)) continue;
    Row row = waiting;
    row.handle = ++last_handle_;
    draft->plan.added.push_back({row.handle, seniority.key.first, seniority.key.second});
    draft->added.push_back(seniority);
    if (!Slice(row, draft)) draft->plan.slices.push_back({row.handle, 0});
  }
}

// Preempted sequences and new ones, in one order: nobody enters before one that waits in front of
// it.
void GroupPlanner::Enter(const Rows& rows, bool own_waits, Draft* draft) {
  std::map<Seniority, Row> waiting;
  for (const auto& [seniority, row] : rows) {
    if (row.kv_tokens == 0) waiting.emplace(seniority, row);
  }
  int64_t looked_at = 0;  // no more of them fit a step
  for (const auto& [seniority, tokens] : queue_) {
    if (ended_.contains(seniority.key)) continue;
    waiting.emplace(seniority, Row{.lacks = tokens});
    if (++looked_at > config_.batch.max_batch_sequences) break;
  }
  bool open = draft->plan.preempted.empty() && !own_waits;
  if (!open && !waiting.empty()) draft->wanted += Claim(waiting.begin()->second);
  for (auto& [seniority, row] : waiting) {
    const bool is_new = row.handle == 0;
    if (is_new && !open) continue;
    if (is_new) row.handle = last_handle_ + 1;
    open = open && EnterOne(row, Headroom(rows, *draft), draft);
    if (open && is_new) {
      draft->plan.added.push_back({++last_handle_, seniority.key.first, seniority.key.second});
    }
    if (open) draft->added.push_back(seniority);
    // A sequence that lacks one token runs it, unless the plan says otherwise.
    if (!open && !is_new && row.lacks == 1) draft->plan.slices.push_back({row.handle, 0});
  }
}

}  // namespace skein::scheduler
