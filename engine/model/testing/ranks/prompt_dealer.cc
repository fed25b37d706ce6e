#include "engine/model/testing/ranks/prompt_dealer.h"

#include <algorithm>

namespace skein::engine {

int64_t PromptDealer::BlocksLeft() const {
  return (prompt_tokens_ + block_tokens_ - 1) / block_tokens_ -
         static_cast<int64_t>(owners_.size());
}

DealtPiece PromptDealer::Start(const std::vector<int>& members) const {
  const size_t ranks = members.size();
  DealtPiece piece;
  piece.members = members;
  piece.shares.resize(ranks);
  piece.history.resize(ranks);
  piece.moves.assign(ranks, std::vector<std::vector<int32_t>>(ranks));
  return piece;
}

DealtPiece PromptDealer::NextEven(const std::vector<int>& members, int64_t blocks) {
  DealtPiece piece = Start(members);
  std::vector<int> owners = owners_;
  const auto count_of = [&](int member) {
    return std::count(owners.begin(), owners.end(), member);
  };
  for (bool moved = true; moved;) {
    moved = false;
    const auto poorest = *std::min_element(members.begin(), members.end(),
                                           [&](int a, int b) { return count_of(a) < count_of(b); });
    for (int& owner : owners) {
      if (count_of(owner) <= count_of(poorest) + 1) continue;
      owner = poorest;
      moved = true;
      break;
    }
  }
  DealHistory(owners, &piece);
  const auto shards = static_cast<int64_t>(2 * members.size());
  std::vector<int64_t> sizes(static_cast<size_t>(shards), blocks / shards);
  for (int64_t i = 0; i < blocks % shards; ++i) ++sizes[static_cast<size_t>(i)];
  DealShards(sizes, &piece);
  return piece;
}

DealtPiece PromptDealer::NextRandom(const std::vector<int>& members, int64_t blocks) {
  DealtPiece piece = Start(members);
  std::vector<int> owners = owners_;
  const auto one_in = static_cast<uint32_t>(1 + random_() % 4);
  for (int& owner : owners) {
    if (random_() % one_in == 0) owner = members[random_() % members.size()];
  }
  DealHistory(owners, &piece);
  std::vector<int64_t> cuts = {0, blocks};
  while (cuts.size() <= 2 * members.size()) {
    cuts.push_back(static_cast<int64_t>(random_() % static_cast<uint64_t>(blocks + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < cuts.size(); ++i) sizes.push_back(cuts[i] - cuts[i - 1]);
  DealShards(sizes, &piece);
  return piece;
}

void PromptDealer::DealHistory(const std::vector<int>& new_owners, DealtPiece* piece) {
  const auto rank_of = [&](int member) {
    return static_cast<size_t>(std::find(piece->members.begin(), piece->members.end(), member) -
                               piece->members.begin());
  };
  for (size_t block = 0; block < new_owners.size(); ++block) {
    const int owner = new_owners[block];
    const auto id = static_cast<int32_t>(block);
    if (holders_[block].insert(owner).second) {
      piece->moves[rank_of(owners_[block])][rank_of(owner)].push_back(id);
    }
    piece->history[rank_of(owner)].push_back(id);
    piece->shares[rank_of(owner)].history_tokens += block_tokens_;
  }
  owners_ = new_owners;
}

void PromptDealer::DealShards(const std::vector<int64_t>& sizes, DealtPiece* piece) {
  const size_t ranks = piece->members.size();
  for (size_t shard = 0; shard < sizes.size(); ++shard) {
    if (sizes[shard] == 0) continue;
    const size_t rank = shard < ranks ? shard : 2 * ranks - 1 - shard;
    const int64_t position = static_cast<int64_t>(owners_.size()) * block_tokens_;
    const int64_t count = std::min(sizes[shard] * block_tokens_, prompt_tokens_ - position);
    piece->shares[rank].spans.push_back({position, count});
    for (int64_t i = 0; i < sizes[shard]; ++i) {
      owners_.push_back(piece->members[rank]);
      holders_.push_back({piece->members[rank]});
    }
  }
}

}  // namespace skein::engine
