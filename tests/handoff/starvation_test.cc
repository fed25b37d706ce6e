// Tetris section 4.2: eight senders, sixteen requests whose chunks are spread over them, a receiver
// with two staging buffers. Without the handshake's order, a request may hold a buffer and wait
// forever for its second chunk's. With it, every request gets its buffers in the order of its first
// call and keeps them until its last chunk has arrived. Real threads, real transports.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "engine/handoff/handoff_sender.h"
#include "engine/handoff/staging_receiver.h"
#include "engine/handoff/testing/pool.h"
#include "scheduler/kv/staging_buffer_queue.h"

namespace skein {
namespace {

using engine::HandoffKey;
using engine::PoolKind;
using scheduler::InstanceId;
using scheduler::StagingRequest;
using std::chrono::steady_clock;

constexpr engine::KvSpec kSpec = {{.num_layers = 2,
                                   .kv_heads = 1,
                                   .head_dim = 8,
                                   .block_tokens = 4,
                                   .dtype = engine::DType::kBF16},
                                  1024};
constexpr int kBuffers = 2, kSlots = 3, kSenders = 8, kRequests = 16;

scheduler::TimeUs Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

StagingRequest NameOf(int request) { return {{1, static_cast<uint64_t>(request) + 1}, {1}}; }
HandoffKey KeyOf(int request) { return {1, static_cast<uint64_t>(request) + 1, 1}; }

// A prompt and its computation: chunk by chunk on a growing set of senders.
struct Request {
  int64_t tokens = 0;
  engine::PromptKv kv;
  std::vector<BlockId> remote;               // blocks at the receiver
  std::vector<std::vector<int64_t>> shares;  // by sender: global blocks, ascending
  std::vector<int64_t> chunk_ends;           // blocks
};

Request RandomRequest(std::mt19937_64* random) {
  Request request;
  const int64_t blocks = 4 + static_cast<int64_t>((*random)() % 24);
  request.tokens = blocks * kSpec.block_tokens - static_cast<int64_t>((*random)() % 4);
  request.kv = engine::RandomKv(kSpec, blocks, random);
  request.shares.resize(kSenders);
  std::vector<size_t> members(kSenders);
  std::iota(members.begin(), members.end(), size_t{0});
  std::shuffle(members.begin(), members.end(), *random);
  size_t size = 1 + (*random)() % 3;
  for (int64_t end = 0; end < blocks;) {
    const int64_t first = end;
    end = std::min(blocks, first + 2 + static_cast<int64_t>((*random)() % 8));
    for (int64_t global = first; global < end; ++global) {
      request.shares[members[(*random)() % size]].push_back(global);
    }
    request.chunk_ends.push_back(end);
    size = std::min<size_t>(kSenders, size + (*random)() % 3);
  }
  return request;
}

// The decode side: gives buffers and copies blocks out. Records a log of events.
class Receiver {
 public:
  Receiver(engine::TestingNetwork* network, std::vector<Request>* requests, uint64_t seed)
      : requests_(*requests),
        pool_(network, kSpec),
        staging_(*engine::StagingReceiver::Create(pool_.transport.get(), kSpec, pool_.kv_regions,
                                                  kBuffers, kSlots)),
        queue_(kBuffers, {.lease_us = 600 * scheduler::kSecondUs,
                          .acquire_lease_us = 600 * scheduler::kSecondUs}),
        progress_([this] {
          std::vector<engine::TransferCompletion> none;
          while (!ending_) pool_.transport->Poll(16, std::chrono::milliseconds(1), &none);
        }) {
    std::mt19937_64 random(seed);
    std::vector<BlockId> blocks = engine::RandomBlocks(kSpec.num_blocks, kSpec.num_blocks, &random);
    for (Request& request : requests_) {
      for (size_t i = 0; i < request.kv[0].size(); ++i) {
        request.remote.push_back(blocks.back());
        blocks.pop_back();
      }
      int64_t writers = 0;
      for (const auto& share : request.shares) writers += !share.empty();
      missing_.push_back(writers);
    }
  }
  ~Receiver() {
    ending_ = true;
    progress_.join();
  }

  std::optional<engine::HandoffGrant> Acquire(int request, int sender) {
    std::lock_guard lock(mu_);
    if (asked_.insert(request).second) order_.push_back(request);
    const auto buffer = queue_.Acquire(NameOf(request), Writer(sender), Now());
    Look();
    if (!buffer.has_value()) {
      ++not_yet_;
      return std::nullopt;
    }
    buffer_of_[{request, sender}] = *buffer;
    return engine::HandoffGrant{.targets = {{{}, staging_->Description(*buffer)}},
                                .post_until = steady_clock::now() + std::chrono::seconds(600),
                                .staging_slots = kSlots};
  }

  absl::Status Take(int request, int sender, std::span<const StagedBlock> part) {
    int buffer = 0;
    {
      std::lock_guard lock(mu_);
      buffer = buffer_of_.at({request, sender});
      EXPECT_EQ(queue_.OwnerOf(buffer), NameOf(request));
      EXPECT_EQ(queue_.WriterOf(buffer), Writer(sender));
    }
    return staging_->Take(buffer, part, requests_[static_cast<size_t>(request)].remote);
  }

  void Finished(int request, int sender) {
    std::lock_guard lock(mu_);
    queue_.Finished(NameOf(request), Writer(sender), Now());
    Look();
    if (--missing_[static_cast<size_t>(request)] > 0) return;
    queue_.End(NameOf(request), Now());
    ended_.insert(request);
    Look();
    if (ended_.size() == kRequests) all_ended_.notify_all();
  }

  bool WaitForAll() {
    std::unique_lock lock(mu_);
    return all_ended_.wait_for(lock, std::chrono::seconds(120),
                               [this] { return ended_.size() == kRequests; });
  }

  // From the log: buffers are first granted in the order of first calls, and none is taken away
  // before the end.
  void ExpectPapersOrder() {
    EXPECT_EQ(first_had_, order_);
    EXPECT_EQ(queue_.free(), kBuffers);
    EXPECT_GT(not_yet_, 0);
  }
  void ExpectArrived() {
    for (const Request& request : requests_) {
      for (int layer = 0; layer < kSpec.num_layers; ++layer) {
        for (size_t i = 0; i < request.remote.size(); ++i) {
          const auto& bytes = request.kv[static_cast<size_t>(layer)][i];
          ASSERT_EQ(std::memcmp(pool_.Block(layer, request.remote[i]), bytes.data(), bytes.size()),
                    0);
        }
      }
    }
  }

 private:
  static InstanceId Writer(int sender) { return {static_cast<uint64_t>(sender) + 1}; }

  // Writers that got a buffer since the last call.
  void Look() {
    EXPECT_TRUE(queue_.CheckInvariants().ok()) << queue_.CheckInvariants();
    for (int b = 0; b < kBuffers; ++b) {
      const auto owner = queue_.OwnerOf(b);
      const int request = owner.has_value() ? static_cast<int>(owner->id.serial) - 1 : -1;
      int& before = owner_before_[b];
      if (request == before) continue;
      EXPECT_TRUE(before == -1 || ended_.contains(before)) << "taken from " << before;
      before = request;
      if (request < 0 || !had_.insert(request).second) continue;
      first_had_.push_back(request);
    }
  }

  std::vector<Request>& requests_;
  engine::TestingPool pool_;
  std::unique_ptr<engine::StagingReceiver> staging_;
  std::mutex mu_;
  std::condition_variable all_ended_;
  scheduler::StagingBufferQueue queue_;
  std::map<std::pair<int, int>, int> buffer_of_;
  std::vector<int64_t> missing_;  // by request: writers that have not finished
  std::vector<int> order_, first_had_;
  std::set<int> asked_, had_, ended_;
  std::map<int, int> owner_before_ = {{0, -1}, {1, -1}};
  int64_t not_yet_ = 0;
  std::atomic<bool> ending_{false};
  std::thread progress_;
};

// One prefill instance: computes its shares chunk by chunk in random order, acquires buffers, and
// pumps.
class Sender {
 public:
  Sender(engine::TestingNetwork* network, const std::vector<Request>& requests, int index,
         uint64_t seed, Receiver* receiver)
      : requests_(requests),
        index_(index),
        receiver_(receiver),
        random_(seed * 100 + static_cast<uint64_t>(index)),
        pool_(network, kSpec),
        sender_(pool_.transport.get(), kSpec, pool_.regions, std::chrono::seconds(60), Ends()) {
    std::vector<BlockId> free = engine::RandomBlocks(kSpec.num_blocks, kSpec.num_blocks, &random_);
    for (int r = 0; r < kRequests; ++r) {
      const Request& request = requests_[static_cast<size_t>(r)];
      std::vector<HandoffBlock> blocks;
      for (const int64_t global : request.shares[static_cast<size_t>(index)]) {
        blocks.push_back({global, free.back()});
        free.pop_back();
      }
      if (blocks.empty()) continue;
      sender_.Open(KeyOf(r), blocks, request.tokens);
      open_[r] = {std::move(blocks), 0, false};
    }
  }

  void Run() {
    while (!open_.empty()) {
      auto it = std::next(open_.begin(), static_cast<int64_t>(random_() % open_.size()));
      Advance(it->first, &it->second);
      sender_.Pump(std::chrono::microseconds(200));  // there are more threads than cores
      for (const int request : done_) {
        open_.erase(request);
        receiver_->Finished(request, index_);
      }
      done_.clear();
    }
  }
  const std::vector<absl::Status>& failures() const { return failures_; }

 private:
  struct Open {
    std::vector<HandoffBlock> blocks;
    size_t chunk = 0;
    bool granted = false;
  };

  engine::HandoffEnds Ends() {
    return {.done = [this](HandoffKey key, std::vector<int64_t>) { done_.push_back(Of(key)); },
            .failed = [this](HandoffKey, absl::Status s) { failures_.push_back(s); },
            .stopped = [](HandoffKey) {},
            .part =
                [this](HandoffKey key, std::vector<StagedBlock> part) {
                  std::vector<int32_t> slots;
                  for (const StagedBlock& staged : part) slots.push_back(staged.slot);
                  sender_.Taken(key, slots, receiver_->Take(Of(key), index_, part));
                }};
  }
  static int Of(HandoffKey key) { return static_cast<int>(key.id.serial) - 1; }

  // The request's next chunk is computed; acquires a staging buffer.
  void Advance(int request, Open* open) {
    const Request& prompt = requests_[static_cast<size_t>(request)];
    if (open->chunk < prompt.chunk_ends.size()) {
      const int64_t first = open->chunk == 0 ? 0 : prompt.chunk_ends[open->chunk - 1];
      const int64_t end = prompt.chunk_ends[open->chunk++];
      for (int layer = 0; layer < kSpec.num_layers; ++layer) {
        for (const HandoffBlock& block : open->blocks) {
          if (block.global < first || block.global >= end) continue;
          const auto& bytes =
              prompt.kv[static_cast<size_t>(layer)][static_cast<size_t>(block.global)];
          std::memcpy(pool_.Block(layer, block.local), bytes.data(), bytes.size());
        }
        sender_.Written(KeyOf(request), layer, std::min(end * kSpec.block_tokens, prompt.tokens));
      }
    }
    if (open->granted) return;
    auto grant = receiver_->Acquire(request, index_);
    if (!grant.has_value()) return;
    open->granted = true;
    sender_.Grant(KeyOf(request), *std::move(grant));
  }

  const std::vector<Request>& requests_;
  const int index_;
  Receiver* const receiver_;
  std::mt19937_64 random_;
  engine::TestingPool pool_;
  std::vector<int> done_;
  std::vector<absl::Status> failures_;
  engine::HandoffSender sender_;
  std::map<int, Open> open_;
};

class StarvationTest : public ::testing::TestWithParam<PoolKind> {};

TEST_P(StarvationTest, SixteenRequestsOfEightSendersThroughTwoStagingBuffers) {
  for (uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(seed);
    engine::TestingNetwork network(GetParam());
    std::mt19937_64 random(seed);
    std::vector<Request> requests;
    for (int r = 0; r < kRequests; ++r) requests.push_back(RandomRequest(&random));
    Receiver receiver(&network, &requests, seed);
    std::vector<std::unique_ptr<Sender>> senders;
    for (int s = 0; s < kSenders; ++s) {
      senders.push_back(std::make_unique<Sender>(&network, requests, s, seed, &receiver));
    }
    std::vector<std::thread> threads;
    for (auto& sender : senders) threads.emplace_back([&sender] { sender->Run(); });
    EXPECT_TRUE(receiver.WaitForAll());
    for (std::thread& thread : threads) thread.join();
    for (auto& sender : senders) EXPECT_TRUE(sender->failures().empty());
    receiver.ExpectPapersOrder();
    receiver.ExpectArrived();
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, StarvationTest,
                         ::testing::Values(PoolKind::kLoopback, PoolKind::kUcx),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace skein
