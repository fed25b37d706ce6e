#include "engine/tokenizer/bpe/bpe.h"

#include <algorithm>

#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

constexpr size_t kScanSymbolsMax = 48;

bool IsLater(const BpeModel::Scratch::Candidate& a, const BpeModel::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

bool BpeModel::KnowsEveryByte() const {
  return (byte_level_ || byte_fallback_) &&
         std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
}

void BpeModel::Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  if (!cuts_before_space_) return EncodeWord(piece, scratch, ids);
  while (!piece.empty()) {
    size_t end = 0;
    while (piece.substr(end).starts_with(kSentencePieceSpace)) end += kSentencePieceSpace.size();
    end = piece.find(kSentencePieceSpace, end);
    EncodeWord(piece.substr(0, end), scratch, ids);
    piece.remove_prefix(std::min(end, piece.size()));
  }
}

void BpeModel::EncodeWord(std::string_view piece, Scratch* scratch,
                          std::vector<int32_t>* ids) const {
  const int32_t entry = by_bytes_.Find(piece);
  if (entry >= 0) {
    if (ignore_merges_ || wholeness_[entry].load(std::memory_order_relaxed) == kWhole) {
      ids->push_back(entry);
      return;
    }
  }
  scratch->ids.clear();
  Begin(piece, &scratch->ids);
  if (scratch->ids.size() <= kScanSymbolsMax) {
    MergeByScan(scratch);
  } else {
    MergeByHeap(scratch);
  }
  if (entry >= 0) {
    const bool whole = scratch->ids.size() == 1 && scratch->ids[0] == entry;
    wholeness_[entry].store(whole ? kWhole : kSplit, std::memory_order_relaxed);
  }
  ids->insert(ids->end(), scratch->ids.begin(), scratch->ids.end());
}

void BpeModel::Begin(std::string_view piece, std::vector<int32_t>* ids) const {
  if (byte_level_) {
    BeginWithBytes(piece, ids);
  } else {
    BeginWithChars(piece, ids);
  }
}

// An unknown symbol becomes unk, a run of them one unk if they fuse; without unk it is dropped.
void BpeModel::BeginWithBytes(std::string_view piece, std::vector<int32_t>* ids) const {
  bool previous_unknown = false;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    const bool unknown = id < 0;
    if (!unknown) {
      ids->push_back(id);
    } else if (unk_id_ >= 0 && !(fuse_unk_ && previous_unknown)) {
      ids->push_back(unk_id_);
    }
    previous_unknown = unknown;
  }
}

void BpeModel::BeginWithChars(std::string_view piece, std::vector<int32_t>* ids) const {
  bool previous_unknown = false;
  for (size_t pos = 0; pos < piece.size();) {
    const size_t begin = pos;
    NextChar(piece, &pos);
    const std::string_view c = piece.substr(begin, pos - begin);
    const int32_t id = by_bytes_.Find(c);
    const bool unknown = id < 0 && !AppendBytesOf(c, ids);
    if (id >= 0) {
      ids->push_back(id);
    } else if (unknown && unk_id_ >= 0 && !(fuse_unk_ && previous_unknown)) {
      ids->push_back(unk_id_);
    }
    previous_unknown = unknown;
  }
}

// False, and nothing appended, unless the vocabulary has all bytes of `c`.
bool BpeModel::AppendBytesOf(std::string_view c, std::vector<int32_t>* ids) const {
  if (!byte_fallback_) return false;
  const auto id_of = [&](char b) { return byte_ids_[static_cast<unsigned char>(b)]; };
  if (!std::all_of(c.begin(), c.end(), [&](char b) { return id_of(b) >= 0; })) return false;
  for (const char b : c) ids->push_back(id_of(b));
  return true;
}

void BpeModel::MergeByScan(Scratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<uint64_t>& merges = scratch->merges;
  if (ids.size() < 2) return;
  merges.resize(ids.size() - 1);
  for (size_t i = 0; i < merges.size(); ++i) merges[i] = MergeOf(ids[i], ids[i + 1]);
  while (!merges.empty()) {
    const auto best = std::min_element(merges.begin(), merges.end());
    if (*best == kNoMerge) return;
    const size_t at = static_cast<size_t>(best - merges.begin());
    ids[at] = static_cast<int32_t>(*best & 0xFFFFFFFF);
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
    merges.erase(best);
    if (at > 0) merges[at - 1] = MergeOf(ids[at - 1], ids[at]);
    if (at < merges.size()) merges[at] = MergeOf(ids[at], ids[at + 1]);
  }
}

// Puts the pair that begins at symbol `at` on the heap if it can merge.
void BpeModel::Offer(int32_t at, Scratch* scratch) const {
  const auto& symbols = scratch->symbols;
  if (at < 0 || symbols[at].next < 0) return;
  const int32_t left = symbols[at].id, right = symbols[symbols[at].next].id;
  const uint64_t merge = MergeOf(left, right);
  if (merge == kNoMerge) return;
  scratch->heap.push_back({static_cast<uint32_t>(merge >> 32), at, left, right,
                           static_cast<int32_t>(merge & 0xFFFFFFFF)});
  std::push_heap(scratch->heap.begin(), scratch->heap.end(), IsLater);
}

void BpeModel::MergeByHeap(Scratch* scratch) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const auto count = static_cast<int32_t>(scratch->ids.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({scratch->ids[i], i - 1, i + 1 < count ? i + 1 : -1});
  for (int32_t i = 0; i < count; ++i) Offer(i, scratch);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), IsLater);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.at];
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;  // makes its own candidates stale
    if (left.next >= 0) symbols[left.next].previous = best.at;
    Offer(left.previous, scratch);
    Offer(best.at, scratch);
  }
  scratch->ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) scratch->ids.push_back(symbols[i].id);
}

}  // namespace skein::engine
