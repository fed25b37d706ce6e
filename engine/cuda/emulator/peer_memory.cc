#include "engine/cuda/emulator/peer_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine::simt {
namespace {

constexpr size_t kWordBytes = 4;
constexpr size_t kPageBytes = 4096;

void Join(const Ticks& from, Ticks* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

}  // namespace

// At least a page lies between two ranks, so that an access behind one's end is not the next's.
PeerMemory::PeerMemory(int ranks, size_t bytes)
    : bytes_(bytes),
      stride_((bytes / kPageBytes + 2) * kPageBytes),
      mapped_bytes_(stride_ * static_cast<size_t>(ranks)),
      words_(bytes / kWordBytes * static_cast<size_t>(ranks)) {
  SKEIN_CHECK(bytes % kWordBytes == 0);
  void* mapping =
      mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SKEIN_CHECK(mapping != MAP_FAILED);
  mapping_ = static_cast<std::byte*>(mapping);
  for (Word& word : words_) Put(&word, {.released = -1});
}

PeerMemory::~PeerMemory() { munmap(mapping_, mapped_bytes_); }

std::byte* PeerMemory::Of(int rank) { return mapping_ + stride_ * static_cast<size_t>(rank); }

size_t PeerMemory::IndexOf(const void* p, int words, const Site& site) const {
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(p) - mapping_);
  if (offset % kWordBytes != 0) KernelFailure(site, "the address is not aligned");
  const size_t in_rank = offset % stride_;
  if (offset >= mapped_bytes_ || in_rank + static_cast<size_t>(words) * kWordBytes > bytes_) {
    KernelFailure(site, "outside the memory that ranks share");
  }
  return (offset / stride_ * bytes_ + in_rank) / kWordBytes;
}

void PeerMemory::Put(Word* word, const StoreOf& store) {
  if (word->count == kStoresKept) {
    std::copy(word->stores + 1, word->stores + kStoresKept, word->stores);
    --word->count;
  }
  word->stores[word->count++] = store;
}

uint32_t PeerMemory::Peek(const void* p) const {
  return Newest(p, {"PeerMemory::Peek", __FILE__, __LINE__});
}

void PeerMemory::Poke(void* p, uint32_t value) {
  Put(&words_[IndexOf(p, 1, {"PeerMemory::Poke", __FILE__, __LINE__})],
      {.value = value, .released = -1});
}

void PeerMemory::Begin(int agents, uint64_t seed) {
  ++run_;
  nothing_ = std::make_shared<const Ticks>(static_cast<size_t>(agents), 0);
  random_ = (seed + 1) * 0x9e3779b97f4a7c15u;
  open_loads_ = 0;
}

void PeerMemory::Settle() {
  ++run_;
  releases_.clear();
}

uint64_t PeerMemory::Random() {  // xorshift64*
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return random_ * 0x2545f4914f6cdd1du >> 16;
}

bool PeerMemory::Sees(const PeerView& view, const StoreOf& store) const {
  return store.run < run_ || store.agent == view.agent ||
         store.tick <= (*view.seen)[static_cast<size_t>(store.agent)];
}

void PeerMemory::Load(const PeerView& view, const void* p, uint32_t* out, int words,
                      const Site& site) {
  const size_t first = IndexOf(p, words, site);
  for (int w = 0; w < words; ++w) {
    const Word& word = words_[first + static_cast<size_t>(w)];
    const int newest = word.count - 1;
    int at = newest;
    while (at > 0 && !Sees(view, word.stores[at])) --at;
    if (at != newest) {
      ++open_loads_;
      // Half of the time the oldest.
      const auto choices = static_cast<uint64_t>(newest - at + 1);
      if (Random() % 2 == 0) at += static_cast<int>(Random() % choices);
    }
    out[w] = word.stores[at].value;
  }
}

void PeerMemory::Store(const PeerView& view, void* p, const uint32_t* in, int words,
                       const Site& site) {
  const size_t first = IndexOf(p, words, site);
  for (int w = 0; w < words; ++w) {
    Put(&words_[first + static_cast<size_t>(w)], {in[w], view.tick, view.agent, run_, -1});
  }
}

void PeerMemory::Release(PeerView* view, void* p, uint32_t value, const Site& site) {
  const size_t at = IndexOf(p, 1, site);
  PeerClock clock;
  const uint32_t tick = view->tick;
  Give(view, &clock);
  releases_.push_back(Close(&clock));
  Put(&words_[at], {value, tick, view->agent, run_, static_cast<int32_t>(releases_.size()) - 1});
}

uint32_t PeerMemory::Acquire(PeerView* view, const void* p, const Site& site) {
  const Word& word = words_[IndexOf(p, 1, site)];
  const StoreOf& store = word.stores[word.count - 1];
  if (store.released >= 0 && !Sees(*view, store)) {  // who sees it has seen what it released
    auto all = std::make_shared<Ticks>(*view->seen);
    Join(*releases_[static_cast<size_t>(store.released)], all.get());
    view->seen = std::move(all);
  }
  return store.value;
}

uint32_t PeerMemory::Newest(const void* p, const Site& site) const {
  const Word& word = words_[IndexOf(p, 1, site)];
  return word.stores[word.count - 1].value;
}

void PeerMemory::Give(PeerView* view, PeerClock* clock) {
  if (clock->all.empty()) {
    clock->all = *view->seen;
  } else if (view->seen != clock->last) {
    Join(*view->seen, &clock->all);
  }
  clock->last = view->seen;
  clock->all[static_cast<size_t>(view->agent)] = view->tick++;
}

SeenPointer PeerMemory::Close(PeerClock* clock) {
  clock->last.reset();
  return std::make_shared<const Ticks>(std::exchange(clock->all, {}));
}

}  // namespace skein::engine::simt
