// Deals a prompt's pieces over members, for tests of ring steps: evenly as Tetris wants it
// (zigzag, history re-dealt when members join), or at random within what a ring step allows. An
// oracle by its simplicity: it looks at every block one by one.
#pragma once

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "engine/engine.h"

namespace skein::engine {

// Blocks are named by their index in the prompt, members by any number; ranks index `members`.
struct DealtPiece {
  std::vector<int> members;
  std::vector<RankShare> shares;
  std::vector<std::vector<int32_t>> history;             // by rank, ascending
  std::vector<std::vector<std::vector<int32_t>>> moves;  // [from][to], ascending
};

class PromptDealer {
 public:
  PromptDealer(int64_t prompt_tokens, int block_tokens, uint32_t seed)
      : prompt_tokens_(prompt_tokens), block_tokens_(block_tokens), random_(seed) {}

  int64_t BlocksLeft() const;

  // The next `blocks` blocks. REQUIRES: 1 ≤ blocks ≤ BlocksLeft(); members include all earlier.
  DealtPiece NextEven(const std::vector<int>& members, int64_t blocks);
  // Shards of any sizes, none or all of the history moved, anywhere.
  DealtPiece NextRandom(const std::vector<int>& members, int64_t blocks);

 private:
  DealtPiece Start(const std::vector<int>& members) const;
  // Shard i of `sizes` goes to rank i or 2N - 1 - i.
  void DealShards(const std::vector<int64_t>& sizes, DealtPiece* piece);
  void DealHistory(const std::vector<int>& new_owners, DealtPiece* piece);

  int64_t prompt_tokens_;
  int block_tokens_;
  std::mt19937 random_;
  std::vector<int> owners_;             // of each block so far: the member that attends from it
  std::vector<std::set<int>> holders_;  // members that have a copy
};

}  // namespace skein::engine
