#include "scheduler/orchestrator/prefill/timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

double Seconds(TimeUs us) { return static_cast<double>(us) * 1e-6; }

}  // namespace

Timeline::End Timeline::Later(const End& a, const End& b) {
  return {std::max(a.at_s, b.at_s), std::max(a.after_s, b.after_s)};
}

void Timeline::Add(TimelineChunk chunk) {
  const ChunkKey key = chunk.key;
  SKEIN_CHECK(entries_.empty() || entries_.rbegin()->first < key);
  Entry& entry = entries_[key];
  entry.chunk = std::move(chunk);
  for (const int slot : entry.chunk.slots) queues_[static_cast<size_t>(slot)].insert(key);
  const auto [first, is_first] = first_.try_emplace(entry.chunk.plan, &entry);
  if (!is_first) {
    Entry* last = first->second;
    while (last->next != nullptr) last = last->next;
    last->next = &entry;
    entry.before = last;
  }
  fronts_.insert(key);
  Estimate(entry, &free_);  // a pass under way comes by here, too
}

void Timeline::Begin(ChunkKey key, TimeUs since_us) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  TimeUs& running_since_us = it->second.chunk.running_since_us;
  if (running_since_us == since_us) return;
  running_since_us = since_us;
  NoteChange(key);
}

void Timeline::NoteChange(ChunkKey key) {
  exact_ = false;
  looked_ = false;
  behind_ = behind_ || key < next_;
}

void Timeline::Remove(ChunkKey key) {
  const auto it = entries_.find(key);
  if (it != entries_.end()) Erase(&it->second);
}

void Timeline::Drop(Epoch plan) {
  for (auto first = first_.find(plan); first != first_.end(); first = first_.find(plan)) {
    Erase(first->second);
  }
}

void Timeline::Erase(Entry* entry) {
  const ChunkKey key = entry->chunk.key;
  for (const int slot : entry->chunk.slots) {
    absl::btree_set<ChunkKey>& queue = queues_[static_cast<size_t>(slot)];
    queue.erase(key);
    if (!queue.empty()) {
      fronts_.insert(*queue.begin());
      continue;
    }
    free_[static_cast<size_t>(slot)] = {};
    if (passing_) next_free_[static_cast<size_t>(slot)] = {};
  }
  if (entry->before != nullptr) {
    entry->before->next = entry->next;
  } else if (entry->next != nullptr) {
    first_.at(entry->chunk.plan) = entry->next;
  } else {
    first_.erase(entry->chunk.plan);
  }
  if (entry->next != nullptr) {
    entry->next->before = entry->before;
    fronts_.insert(entry->next->chunk.key);
  }
  fronts_.erase(key);
  entries_.erase(key);
  NoteChange(key);
}

// REQUIRES: the chunks before it were estimated; those behind it are not in `free`.
void Timeline::Estimate(const Entry& entry, std::vector<End>* free) {
  const TimelineChunk& chunk = entry.chunk;
  if (chunk.running_since_us != kNever) {
    entry.end = {Seconds(chunk.running_since_us) + chunk.seconds, 0};
  } else {
    End start = entry.before == nullptr ? End{} : entry.before->end;
    for (const int slot : chunk.slots) start = Later(start, (*free)[static_cast<size_t>(slot)]);
    entry.end = {start.at_s + chunk.seconds, start.after_s + chunk.seconds};
  }
  for (const int slot : chunk.slots) {
    End& end = (*free)[static_cast<size_t>(slot)];
    end = Later(end, entry.end);
  }
}

void Timeline::TakeOn() const {
  looked_ = true;
  size_t looks = 0;
  while (!exact_ && looks < looks_max_) {
    if (!passing_) {
      next_free_.assign(free_.size(), End{});
      next_ = {};
      behind_ = false;
      passing_ = true;
    }
    auto it = entries_.lower_bound(next_);
    for (; it != entries_.end() && looks < looks_max_; ++it) {
      Estimate(it->second, &next_free_);
      looks += 1 + it->second.chunk.slots.size();
    }
    if (it != entries_.end()) {
      next_ = it->first;
      return;
    }
    free_.swap(next_free_);
    passing_ = false;
    next_ = {};
    exact_ = !behind_;
  }
}

double Timeline::QueueSeconds(size_t slot, TimeUs now) const {
  if (!looked_) TakeOn();
  const End& free = free_[slot];
  return std::max(free.after_s, free.at_s - Seconds(now));
}

bool Timeline::InFront(const Entry& entry) const {
  return entry.before == nullptr &&
         std::all_of(entry.chunk.slots.begin(), entry.chunk.slots.end(), [&](int slot) {
           return *queues_[static_cast<size_t>(slot)].begin() == entry.chunk.key;
         });
}

std::vector<RequestId> Timeline::TakeReady() {
  std::vector<RequestId> ready;
  for (const ChunkKey key : std::exchange(fronts_, {})) {
    const Entry& entry = entries_.at(key);
    if (entry.chunk.running_since_us == kNever && InFront(entry)) {
      ready.push_back(entry.chunk.request);
    }
  }
  return ready;
}

void Timeline::Recheck(ChunkKey key) {
  if (entries_.count(key) > 0) fronts_.insert(key);
}

std::vector<TimelineChunk> Timeline::Chunks() const {
  std::vector<TimelineChunk> chunks;
  for (const auto& [key, entry] : entries_) chunks.push_back(entry.chunk);
  return chunks;
}

absl::Status Timeline::CheckInvariants() const {
  std::vector<absl::btree_set<ChunkKey>> queues(queues_.size());
  std::map<Epoch, const Entry*> last;  // of each plan
  for (const auto& [key, entry] : entries_) {
    for (const int slot : entry.chunk.slots) queues[static_cast<size_t>(slot)].insert(key);
    const Entry*& before = last[entry.chunk.plan];
    const auto first = first_.find(entry.chunk.plan);
    const bool chained = before == nullptr ? first != first_.end() && first->second == &entry
                                           : before->next == &entry;
    if (!chained || entry.before != before) {
      return absl::InternalError(absl::StrCat("Timeline: chunk ", key.index, " of sequence ",
                                              key.sequence.value, " is not found by its plan"));
    }
    before = &entry;
  }
  for (const auto& [plan, entry] : last) {
    if (entry->next != nullptr) return absl::InternalError("Timeline: a plan has a lost chunk");
  }
  if (queues != queues_ || last.size() != first_.size()) {
    return absl::InternalError("Timeline: a slot's queue or a plan is out of date");
  }
  for (const ChunkKey& key : fronts_) {
    if (entries_.count(key) == 0) return absl::InternalError("Timeline: a lost chunk may be ready");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
