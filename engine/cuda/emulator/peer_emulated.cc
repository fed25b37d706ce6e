#include "engine/cuda/emulator/peer_emulated.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/cuda/emulator/block.h"

namespace skein::engine::simt {
namespace {

// One access in so many ends the thread's turn.
constexpr uint64_t kAccessesOfATurn = 32;

void MaybeYield(BlockRun* block) {
  if (block->peers()->Random() % kAccessesOfATurn == 0) block->Yield();
}

// What looks at a word may do so in a loop: others get their turns.
void Yield(BlockRun* block) {
  block->Yield();
  if (block->peers() == nullptr) std::this_thread::yield();
}

std::atomic_ref<uint32_t> WordOf(const uint32_t* p) {
  return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(p));
}

}  // namespace

void PeerLoadWords(const void* p, uint32_t* out, int words, const Site& site) {
  BlockRun& block = ThisBlock();
  if (block.peers() == nullptr) {
    std::memcpy(out, p, static_cast<size_t>(words) * 4);
    return;
  }
  MaybeYield(&block);
  block.peers()->Load(block.current().view, p, out, words, site);
}

void PeerStoreWords(void* p, const uint32_t* in, int words, const Site& site) {
  BlockRun& block = ThisBlock();
  if (block.peers() == nullptr) {
    std::memcpy(p, in, static_cast<size_t>(words) * 4);
    return;
  }
  MaybeYield(&block);
  block.peers()->Store(block.current().view, p, in, words, site);
}

void PeerRelease(uint32_t* p, uint32_t value, const char* file, int line) {
  BlockRun& block = ThisBlock();
  if (block.peers() == nullptr) return WordOf(p).store(value, std::memory_order_release);
  MaybeYield(&block);
  block.peers()->Release(&block.current().view, p, value, {"PeerRelease", file, line});
}

uint32_t PeerAcquire(const uint32_t* p, const char* file, int line) {
  BlockRun& block = ThisBlock();
  Yield(&block);
  if (block.peers() == nullptr) return WordOf(p).load(std::memory_order_acquire);
  return block.peers()->Acquire(&block.current().view, p, {"PeerAcquire", file, line});
}

void PeerStoreRelaxed(uint32_t* p, uint32_t value, const char* file, int line) {
  BlockRun& block = ThisBlock();
  if (block.peers() == nullptr) return WordOf(p).store(value, std::memory_order_relaxed);
  MaybeYield(&block);
  block.peers()->Store(block.current().view, p, &value, 1, {"PeerStoreRelaxed", file, line});
}

uint32_t PeerLoadRelaxed(const uint32_t* p, const char* file, int line) {
  BlockRun& block = ThisBlock();
  Yield(&block);
  if (block.peers() == nullptr) return WordOf(p).load(std::memory_order_relaxed);
  return block.peers()->Newest(p, {"PeerLoadRelaxed", file, line});
}

int64_t NowNs() {
  if (PeerMemory* peers = ThisBlock().peers(); peers != nullptr) return peers->now;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace skein::engine::simt
