// Memory that the kernels of several ranks reach, as GPUs may show it to them: a plain load may
// return any value that the memory model leaves open, not only the newest.
//
// The model is that of release and acquire. A thread sees, for sure, what itself stored and what
// other threads stored before something that it has waited for: a barrier that both passed, or a
// release whose value (or a later one of that word) it acquired, and so on through other threads.
// Words are of 4 bytes. A load returns the newest store of a word that the thread sees for sure, or
// any later one, chosen by the seed: so a store may be seen late (as if it waited in a store
// buffer, or the old value in a cache) and early, one word of a vector before the other. A word
// remembers its last few stores.
//
// Stricter than a GPU: warp operations order nothing here, only barriers do; two loads of one word
// may see its stores in the wrong order. Not shown: the order of stores that race with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cuda/emulator/grid.h"

namespace skein::engine::simt {

// How far each thread's doings are seen, by thread of the run ("agent").
using Ticks = std::vector<uint32_t>;
using SeenPointer = std::shared_ptr<const Ticks>;

// What a thread sees for sure. Its own doings count from `tick`.
struct PeerView {
  int agent = -1;
  uint32_t tick = 0;
  SeenPointer seen;
};

// What several threads together see.
struct PeerClock {
  Ticks all;
  SeenPointer last;  // of the thread that gave last
};

class PeerMemory {
 public:
  // `bytes` for each rank, zeros; a multiple of 4.
  PeerMemory(int ranks, size_t bytes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Where kernels see a rank's part. Every access but simt_peer.h's is a segmentation fault.
  std::byte* Of(int rank);

  // The newest value, and to store one that everybody sees. For the host, between runs.
  uint32_t Peek(const void* p) const;
  void Poke(void* p, uint32_t value);

  // A run of `agents` threads begins, or has ended: then everybody sees everything.
  void Begin(int agents, uint64_t seed);
  void Settle();

  // For threads. `words` of 4 bytes.
  void Load(const PeerView& view, const void* p, uint32_t* out, int words, const Site& site);
  void Store(const PeerView& view, void* p, const uint32_t* in, int words, const Site& site);
  void Release(PeerView* view, void* p, uint32_t value, const Site& site);
  uint32_t Acquire(PeerView* view, const void* p, const Site& site);
  uint32_t Newest(const void* p, const Site& site) const;

  // Adds what the thread sees and did; what it does from now on is not in it.
  void Give(PeerView* view, PeerClock* clock);
  SeenPointer Close(PeerClock* clock);
  SeenPointer Nothing() const { return nothing_; }

  uint64_t Random();
  // Loads of this run that the model left open: each is a race.
  int64_t open_loads() const { return open_loads_; }

  int64_t now = 0;  // turns of blocks so far

 private:
  static constexpr int kStoresKept = 4;
  struct StoreOf {
    uint32_t value;
    uint32_t tick;
    int32_t agent;
    int32_t run;       // an earlier run's is seen by all
    int32_t released;  // its index in releases_, or -1
  };
  struct Word {
    int count = 0;
    StoreOf stores[kStoresKept];  // oldest first
  };

  size_t IndexOf(const void* p, int words, const Site& site) const;
  void Put(Word* word, const StoreOf& store);
  bool Sees(const PeerView& view, const StoreOf& store) const;

  const size_t bytes_;  // of a rank
  const size_t stride_;
  std::byte* mapping_;
  size_t mapped_bytes_;
  std::vector<Word> words_;
  std::vector<SeenPointer> releases_;
  SeenPointer nothing_;
  int32_t run_ = 1;
  uint64_t random_ = 1;
  int64_t open_loads_ = 0;
};

}  // namespace skein::engine::simt
