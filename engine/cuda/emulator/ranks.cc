#include "engine/cuda/emulator/ranks.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "engine/cuda/emulator/block.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine::simt {
namespace {

constinit thread_local GridQueue* queueing = nullptr;

int64_t BlocksOf(const GridShape& shape) {
  return int64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
}

int64_t ThreadsOf(const GridShape& shape) {
  return BlocksOf(shape) * shape.block.x * shape.block.y * shape.block.z;
}

// Blocks that run no more; their fibers are kept for the next run.
std::vector<std::unique_ptr<BlockRun>>& Pool() {
  static thread_local std::vector<std::unique_ptr<BlockRun>> pool;
  return pool;
}

class RankRun {
 public:
  RankRun(std::span<GridQueue> queues, PeerMemory* memory, const RankRunOptions& options);
  RankRunCounts Run();

 private:
  struct Rank {
    int index = 0;
    GridQueue* queue = nullptr;
    size_t grid = 0;      // which runs
    int64_t started = 0;  // blocks of it
    int64_t running = 0;
    int first_agent = 0;
    uint64_t weight = 1;  // of its turns
    SeenPointer seen;     // at the grid's start
    PeerClock ended;      // what its ended blocks saw and did
  };
  struct Running {
    Rank* rank;
    std::unique_ptr<BlockRun> block;
  };

  void StartBlocks(Rank* rank);
  void StartBlock(Rank* rank);
  size_t Choose();
  void End(size_t running);
  void NextGrid(Rank* rank);

  PeerMemory* const memory_;
  const int blocks_at_once_;
  std::mt19937 random_;
  Counters counters_;
  Order order_;
  std::vector<Rank> ranks_;
  std::vector<Running> running_;
  RankRunCounts counts_;
};

RankRun::RankRun(std::span<GridQueue> queues, PeerMemory* memory, const RankRunOptions& options)
    : memory_(memory),
      blocks_at_once_(options.blocks_at_once),
      random_(static_cast<uint32_t>(options.seed * 2654435761u + 1)) {
  constexpr uint64_t kWeights[] = {1, 1, 3, 12};
  constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kShuffled};
  order_ = kOrders[random_() % 3];
  int64_t agents = 0;
  for (size_t r = 0; r < queues.size(); ++r) {
    int64_t threads = 0;
    for (const WaitingGrid& grid : queues[r]) threads = std::max(threads, ThreadsOf(grid.shape));
    ranks_.push_back({.index = static_cast<int>(r),
                      .queue = &queues[r],
                      .first_agent = static_cast<int>(agents),
                      .weight = kWeights[random_() % 4]});
    agents += threads;
  }
  memory_->Begin(static_cast<int>(agents), options.seed);
  for (Rank& rank : ranks_) rank.seen = memory_->Nothing();
}

RankRunCounts RankRun::Run() {
  for (Rank& rank : ranks_) StartBlocks(&rank);
  while (!running_.empty()) {
    const size_t at = Choose();
    ++memory_->now;
    ++counts_.turns;
    running_[at].block->Turn();
    if (running_[at].block->ended()) End(at);
  }
  counts_.open_loads = memory_->open_loads();
  memory_->Settle();
  for (Rank& rank : ranks_) rank.queue->clear();
  return counts_;
}

void RankRun::StartBlocks(Rank* rank) {
  while (rank->grid < rank->queue->size() && rank->running < blocks_at_once_ &&
         rank->started < BlocksOf((*rank->queue)[rank->grid].shape)) {
    StartBlock(rank);
  }
}

void RankRun::StartBlock(Rank* rank) {
  const WaitingGrid& grid = (*rank->queue)[rank->grid];
  const auto index = static_cast<unsigned>(rank->started++);
  const uint3 place = {index % grid.shape.grid.x, index / grid.shape.grid.x % grid.shape.grid.y,
                       index / grid.shape.grid.x / grid.shape.grid.y};
  if (Pool().empty()) Pool().push_back(std::make_unique<BlockRun>());
  std::unique_ptr<BlockRun> block = std::move(Pool().back());
  Pool().pop_back();
  block->Prepare(grid.shape);
  block->Start(grid.shape, place, &grid.thread,
               {&counters_, &random_, order_, memory_, rank->index});
  std::vector<Thread>& threads = block->threads();
  for (size_t t = 0; t < threads.size(); ++t) {
    const int agent = rank->first_agent + static_cast<int>(index * threads.size() + t);
    threads[t].view = {agent, (*rank->seen)[static_cast<size_t>(agent)] + 1, rank->seen};
  }
  ++rank->running;
  running_.push_back({rank, std::move(block)});
}

// A running block, by its rank's weight.
size_t RankRun::Choose() {
  uint64_t all = 0;
  for (const Running& running : running_) all += running.rank->weight;
  uint64_t at = random_() % all;
  for (size_t i = 0;; ++i) {
    if (at < running_[i].rank->weight) return i;
    at -= running_[i].rank->weight;
  }
}

void RankRun::End(size_t at) {
  Rank* rank = running_[at].rank;
  BlockRun& block = *running_[at].block;
  block.Finish();
  for (Thread& thread : block.threads()) memory_->Give(&thread.view, &rank->ended);
  Pool().push_back(std::move(running_[at].block));
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(at));
  --rank->running;
  if (rank->running == 0 && rank->started == BlocksOf((*rank->queue)[rank->grid].shape)) {
    NextGrid(rank);
  }
  StartBlocks(rank);
}

void RankRun::NextGrid(Rank* rank) {
  ++rank->grid;
  rank->started = 0;
  rank->seen = memory_->Close(&rank->ended);
}

}  // namespace

QueueGrids::QueueGrids(GridQueue* queue) {
  SKEIN_CHECK_MSG(queueing == nullptr, "a QueueGrids within another");
  queueing = queue;
}

QueueGrids::~QueueGrids() { queueing = nullptr; }

GridQueue* ThisQueue() { return queueing; }

RankRunCounts RunRanks(std::span<GridQueue> queues, PeerMemory* memory,
                       const RankRunOptions& options) {
  return RankRun(queues, memory, options).Run();
}

}  // namespace skein::engine::simt
