#include "scheduler/orchestrator/timeline.h"

#include <algorithm>
#include <iterator>

#include "scheduler/base/check.h"

namespace skein::scheduler {
namespace {

double Seconds(TimeUs us) { return static_cast<double>(us) * 1e-6; }

}  // namespace

Timeline::End Timeline::Later(const End& a, const End& b) {
  return {std::max(a.at_s, b.at_s), std::max(a.after_s, b.after_s)};
}

void Timeline::Add(TimelineChunk chunk) {
  const ChunkKey key = chunk.key;
  SKEIN_INVARIANT(entries_.empty() || entries_.rbegin()->first < key);
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
  if (foreseen_) Foresee(entry);
}

void Timeline::Begin(ChunkKey key, TimeUs since_us) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  TimeUs& running_since_us = it->second.chunk.running_since_us;
  if (running_since_us == since_us) return;
  running_since_us = since_us;
  foreseen_ = false;
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
    std::set<ChunkKey>& queue = queues_[static_cast<size_t>(slot)];
    queue.erase(key);
    if (!queue.empty()) fronts_.insert(*queue.begin());
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
  foreseen_ = false;
}

// REQUIRES: what is before it is foreseen, what is behind it is not in free_.
void Timeline::Foresee(const Entry& entry) const {
  const TimelineChunk& chunk = entry.chunk;
  if (chunk.running_since_us != kNever) {
    entry.end = {Seconds(chunk.running_since_us) + chunk.seconds, 0};
  } else {
    End start = entry.before == nullptr ? End{} : entry.before->end;
    for (const int slot : chunk.slots) start = Later(start, free_[static_cast<size_t>(slot)]);
    entry.end = {start.at_s + chunk.seconds, start.after_s + chunk.seconds};
  }
  for (const int slot : chunk.slots) {
    End& free = free_[static_cast<size_t>(slot)];
    free = Later(free, entry.end);
  }
}

double Timeline::QueueSeconds(size_t slot, TimeUs now) const {
  if (!foreseen_) {
    std::fill(free_.begin(), free_.end(), End{});
    for (const auto& [key, entry] : entries_) Foresee(entry);
    foreseen_ = true;
  }
  const End& free = free_[slot];
  return std::max(free.after_s, free.at_s - Seconds(now));
}

bool Timeline::InFront(const Entry& entry) const {
  return entry.before == nullptr &&
         std::all_of(entry.chunk.slots.begin(), entry.chunk.slots.end(), [&](int slot) {
           return *queues_[static_cast<size_t>(slot)].begin() == entry.chunk.key;
         });
}

std::vector<RequestId> Timeline::Ready() {
  std::vector<RequestId> ready;
  for (auto it = fronts_.begin(); it != fronts_.end();) {
    const Entry& entry = entries_.at(*it);
    const bool is_ready = entry.chunk.running_since_us == kNever && InFront(entry);
    if (is_ready) ready.push_back(entry.chunk.request);
    it = is_ready ? std::next(it) : fronts_.erase(it);
  }
  return ready;
}

std::vector<TimelineChunk> Timeline::Chunks() const {
  std::vector<TimelineChunk> chunks;
  for (const auto& [key, entry] : entries_) chunks.push_back(entry.chunk);
  return chunks;
}

}  // namespace skein::scheduler
