// Runs whole prompts in ring steps over several engines, for tests: an engine a rank, a thread
// a rank. Fails the current test when a step fails.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/comm/testing/ranks.h"
#include "engine/engine.h"
#include "engine/model/testing/ranks/prompt_dealer.h"
#include "engine/model/testing/ranks/ring_member.h"

namespace skein::engine {

struct RingChunk {
  int64_t blocks = 0;
  std::vector<int> members;  // engines, by rank
  int tp = 1;                // neighbours by rank that share the dense part
};

struct RingPrompt {
  std::vector<int32_t> ids;
  std::vector<RingChunk> chunks;  // sum to the prompt's blocks
  bool even = true;               // else dealt at random
  bool score = true;              // logprobs of the prompt
  uint32_t seed = 1;              // of block ids and of random deals
};

// Where a block of the prompt was computed.
struct BlockPlace {
  int engine = 0;
  int32_t block = 0;
};

struct RingOutcome {
  std::vector<double> logprobs;  // [i]: of ids[i + 1] after ids[0 … i]
  int32_t token = -1;            // greedy, after the whole prompt
  std::vector<BlockPlace> places;
  int64_t blocks_moved = 0;

  double Nll() const;
};

class RingRanks {
 public:
  // `engines` stay the caller's, and so do the devices of their KV (RingMember); none: as null.
  RingRanks(const std::vector<Engine*>& engines, const FabricFactory& make_fabric,
            const std::vector<Device*>& devices = {});

  // KV that nobody wrote is NaN. Checks what was moved byte by byte.
  RingOutcome Run(const RingPrompt& prompt);

 private:
  void RunPiece(const DealtPiece& piece, int tp);
  void CheckMoves(const DealtPiece& piece);
  RingOutcome Outcome(const RingPrompt& prompt) const;

  std::vector<RingMember> members_;
  TestingRanks ranks_;
};

// The prompt in one plain step on one engine, into blocks 0, 1, …; token and logprobs as above.
RingOutcome RunPlain(Engine& engine, const std::vector<int32_t>& ids, bool score = true,
                     Device* device = nullptr);

}  // namespace skein::engine
