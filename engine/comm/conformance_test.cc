// The contract of communicator.h and fabric.h, run by every fabric whose ranks may be threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/f16.h"
#include "engine/comm/fault_communicator.h"
#include "engine/comm/local_fabric.h"
#include "engine/comm/testing_ranks.h"
#include "engine/comm/ucx_fabric.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

// Its communicators pass through a decorator that has nothing to inject.
class FaultlessFabric : public Fabric {
 public:
  explicit FaultlessFabric(std::unique_ptr<Fabric> inner) : inner_(std::move(inner)) {}

  const std::string& Address() const override { return inner_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto made = inner_->MakeGroup(id, addresses, rank);
    if (!made.ok()) return made.status();
    return std::make_unique<FaultCommunicator>(*std::move(made),
                                               [](uint64_t) { return CommFault{}; });
  }

 private:
  const std::unique_ptr<Fabric> inner_;
};

FabricFactory MakeFactory(const std::string& name) {
  if (name == "Local") {
    return [hub = std::make_shared<LocalHub>()] { return hub->MakeFabric(); };
  }
  if (name == "Faultless") {
    return [hub = std::make_shared<LocalHub>()] {
      return std::make_unique<FaultlessFabric>(hub->MakeFabric());
    };
  }
  return [tls = name == "UcxSharedMemory" ? "self,shm" : "self,tcp"] {
    auto fabric = MakeUcxFabric({.tls = tls});
    SKEIN_CHECK_MSG(fabric.ok(), fabric.status().ToString().c_str());
    return *std::move(fabric);
  };
}

CommDeadline Soon() { return std::chrono::steady_clock::now() + 300ms; }

// What rank `rank` holds at `index`: not exact in any order of summing.
float ValueOf(int rank, int64_t index) {
  const auto mixed = static_cast<uint32_t>(index * 2654435761u + rank * 40503u + 12345u);
  return (static_cast<float>(mixed % 20011) / 20011.0f - 0.5f) * static_cast<float>(1 + rank % 3);
}

void Put(float value, DType dtype, std::byte* place) {
  if (dtype == DType::kF32) std::memcpy(place, &value, 4);
  const BF16 bf16 = ToBF16(value);
  const F16 f16 = static_cast<F16>(value);
  if (dtype == DType::kBF16) std::memcpy(place, &bf16, 2);
  if (dtype == DType::kF16) std::memcpy(place, &f16, 2);
}

float Get(const std::byte* place, DType dtype) {
  float f32 = 0;
  BF16 bf16;
  F16 f16;
  if (dtype == DType::kF32) std::memcpy(&f32, place, 4);
  if (dtype == DType::kBF16) std::memcpy(&bf16, place, 2);
  if (dtype == DType::kF16) std::memcpy(&f16, place, 2);
  if (dtype == DType::kF32) return f32;
  return dtype == DType::kBF16 ? ToFloat(bf16) : static_cast<float>(f16);
}

// Made once: every rank of every test asks for the same few.
const Bytes& Cached(std::tuple<int, int, int64_t, DType> key, const std::function<Bytes()>& make) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int64_t, DType>, Bytes> cache;
  std::lock_guard<std::mutex> lock(mutex);
  auto [found, added] = cache.try_emplace(key);
  if (added) found->second = make();
  return found->second;
}

Bytes MakeValues(int rank, int64_t count, DType dtype) {
  Bytes values(count * BytesOf(dtype));
  for (int64_t i = 0; i < count; ++i) Put(ValueOf(rank, i), dtype, &values[i * BytesOf(dtype)]);
  return values;
}

Bytes MakeSum(int ranks, int64_t count, DType dtype) {
  std::vector<float> sums(count);
  for (int r = 0; r < ranks; ++r) {
    const Bytes values = MakeValues(r, count, dtype);
    for (int64_t i = 0; i < count; ++i) {
      const float value = Get(&values[i * BytesOf(dtype)], dtype);
      sums[i] = r == 0 ? value : sums[i] + value;
    }
  }
  Bytes rounded(count * BytesOf(dtype));
  for (int64_t i = 0; i < count; ++i) Put(sums[i], dtype, &rounded[i * BytesOf(dtype)]);
  return rounded;
}

const Bytes& ValuesOf(int rank, int64_t count, DType dtype) {
  return Cached({0, rank, count, dtype}, [=] { return MakeValues(rank, count, dtype); });
}

// The sum in the order of ranks, in f32, rounded once.
const Bytes& SumOf(int ranks, int64_t count, DType dtype) {
  return Cached({1, ranks, count, dtype}, [=] { return MakeSum(ranks, count, dtype); });
}

Bytes MakeText(uint64_t seed, size_t bytes) {
  Bytes text(bytes);
  for (std::byte& b : text)
    b = static_cast<std::byte>((seed = seed * 6364136223846793005u + 1) >> 56);
  return text;
}

const Bytes& Text(int seed, size_t bytes) {
  return Cached({2, seed, static_cast<int64_t>(bytes), DType::kF32},
                [=] { return MakeText(seed, bytes); });
}

absl::Status Expect(bool condition, const char* what) {
  return condition ? absl::OkStatus() : absl::DataLossError(what);
}

void ExpectOk(const std::vector<absl::Status>& ends) {
  for (size_t r = 0; r < ends.size(); ++r) EXPECT_TRUE(ends[r].ok()) << "rank " << r << ends[r];
}

// Not OK in any of the ways of a peer's failure.
bool Ended(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Counts that divide by nothing, none, one, and enough for several pieces.
constexpr int64_t kCounts[] = {0, 1, 7, 1001, 150001};
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

absl::Status CheckAllReduce(Communicator* comm) {
  for (DType dtype : kDTypes) {
    for (int64_t count : kCounts) {
      Bytes data = ValuesOf(comm->Rank(), count, dtype);
      auto status = comm->AllReduce(data.data(), count, dtype, Later());
      if (!status.ok()) return status;
      if (data != SumOf(comm->Size(), count, dtype)) return Expect(false, "AllReduce's bits");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckReduceScatter(Communicator* comm) {
  for (DType dtype : kDTypes) {
    for (int64_t count : kCounts) {
      const Bytes send = ValuesOf(comm->Rank(), count * comm->Size(), dtype);
      const Bytes sum = SumOf(comm->Size(), count * comm->Size(), dtype);
      Bytes receive(count * BytesOf(dtype));
      auto status = comm->ReduceScatter(send.data(), receive.data(), count, dtype, Later());
      if (!status.ok()) return status;
      if (!std::equal(receive.begin(), receive.end(), sum.begin() + comm->Rank() * receive.size()))
        return Expect(false, "ReduceScatter's bits");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAllGather(Communicator* comm) {
  for (size_t bytes : {0, 1, 4097, 300007}) {
    Bytes wanted, receive(bytes * comm->Size());
    for (int r = 0; r < comm->Size(); ++r) {
      const Bytes text = Text(r, bytes);
      wanted.insert(wanted.end(), text.begin(), text.end());
    }
    const Bytes own = Text(comm->Rank(), bytes);
    auto status = comm->AllGather(own, receive, Later());
    if (!status.ok()) return status;
    if (receive != wanted) return Expect(false, "AllGather");
    // In place.
    std::fill(receive.begin(), receive.end(), std::byte{0});
    const std::span<std::byte> place(receive.data() + comm->Rank() * bytes, bytes);
    std::copy(own.begin(), own.end(), place.begin());
    status = comm->AllGather(place, receive, Later());
    if (!status.ok()) return status;
    if (receive != wanted) return Expect(false, "AllGather in place");
  }
  return absl::OkStatus();
}

// What `from` sends `to`: some nothing, some little, some much.
const Bytes& Uneven(int from, int to) {
  const size_t bytes = (from + to) % 3 == 0                   ? 0
                       : (from * 7919 + to * 104729) % 3 == 1 ? 13
                                                              : 200003;
  return Text(from * 100 + to, bytes);
}

absl::Status CheckAllToAll(Communicator* comm) {
  std::vector<Bytes> send, receive;
  for (int r = 0; r < comm->Size(); ++r) {
    send.push_back(Uneven(comm->Rank(), r));
    receive.emplace_back(Uneven(r, comm->Rank()).size());
  }
  std::vector<std::span<const std::byte>> from(send.begin(), send.end());
  std::vector<std::span<std::byte>> to(receive.begin(), receive.end());
  auto status = comm->AllToAll(from, to, Later());
  if (!status.ok()) return status;
  for (int r = 0; r < comm->Size(); ++r) {
    if (receive[r] != Uneven(r, comm->Rank())) return Expect(false, "AllToAll");
  }
  return absl::OkStatus();
}

absl::Status CheckRing(Communicator* comm) {
  const int next = (comm->Rank() + 1) % comm->Size();
  const int previous = (comm->Rank() + comm->Size() - 1) % comm->Size();
  for (size_t bytes : {0, 5, 70000, 1 << 20}) {
    Bytes here = Text(comm->Rank(), bytes), there(bytes);
    for (int round = 1; round <= comm->Size(); ++round) {
      auto status = comm->SendRecv(here, next, there, previous, Later());
      if (!status.ok()) return status;
      std::swap(here, there);
      const int owner = (comm->Rank() - round + 2 * comm->Size()) % comm->Size();
      if (here != Text(owner, bytes)) return Expect(false, "SendRecv");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOneWay(Communicator* comm) {
  if (comm->Size() < 2) return absl::OkStatus();
  Bytes data = Text(comm->Rank(), 100000);
  if (comm->Rank() == 0) return comm->SendRecv(data, 1, {}, 1, Later());
  if (comm->Rank() > 1) return absl::OkStatus();
  auto status = comm->SendRecv({}, 0, data, 0, Later());
  return status.ok() ? Expect(data == Text(0, 100000), "one way") : status;
}

absl::Status CheckBroadcast(Communicator* comm) {
  for (int root = 0; root < comm->Size(); ++root) {
    for (size_t bytes : {0, 3, 200003}) {
      Bytes data = Text(comm->Rank() == root ? root : 99, bytes);
      auto status = comm->Broadcast(data, root, Later());
      if (!status.ok()) return status;
      if (data != Text(root, bytes)) return Expect(false, "Broadcast");
    }
  }
  return absl::OkStatus();
}

using Check = absl::Status (*)(Communicator*);
constexpr Check kChecks[] = {CheckAllReduce, CheckReduceScatter, CheckAllGather, CheckAllToAll,
                             CheckRing,      CheckOneWay,        CheckBroadcast};

absl::Status CheckEverything(Communicator* comm) {
  for (Check check : kChecks) {
    if (auto status = check(comm); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// One small call of each kind, for what goes wrong.
absl::Status CallOnce(int kind, Communicator* comm, CommDeadline deadline) {
  const int n = comm->Size(), rank = comm->Rank();
  const int64_t count = 50000;
  std::vector<float> data(count * n, 1.0f), out(count * n);
  const auto bytes = std::as_bytes(std::span(data)).first(count * 4);
  const auto into = std::as_writable_bytes(std::span(out));
  const std::vector<std::span<const std::byte>> send(n, bytes);
  std::vector<std::span<std::byte>> receive;
  for (int r = 0; r < n; ++r) receive.push_back(into.subspan(r * bytes.size(), bytes.size()));
  switch (kind) {
    case 0:
      return comm->AllReduce(data.data(), count, DType::kF32, deadline);
    case 1:
      return comm->AllGather(bytes, into, deadline);
    case 2:
      return comm->ReduceScatter(data.data(), out.data(), count, DType::kF32, deadline);
    case 3:
      return comm->AllToAll(send, receive, deadline);
    case 4:
      return comm->SendRecv(bytes, (rank + 1) % n, receive[0], (rank + n - 1) % n, deadline);
    default:  // too much for any rank to be sent it before it asks
      return comm->Broadcast(into.first(count * 4), 0, deadline);
  }
}
constexpr int kKinds = 6;

// Every later call fails at once, however far its deadline.
absl::Status CheckBroken(Communicator* comm) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (!absl::IsUnavailable(CallOnce(kind, comm, Later()))) return Expect(false, "not broken");
  }
  return absl::OkStatus();
}

class CommConformance : public testing::TestWithParam<const char*> {
 protected:
  FabricFactory factory_ = MakeFactory(GetParam());

  // The ranks but one make a group, and it works.
  void ExpectSurvivorsWork(TestingRanks* ranks, int lost) {
    std::vector<int> survivors;
    for (int r = 0; r < ranks->Ranks(); ++r) {
      if (r != lost) survivors.push_back(r);
    }
    const auto group = ranks->Group(survivors);
    ExpectOk(TestingRanks::Run(group, CheckAllReduce));
  }
};

TEST_P(CommConformance, EveryOperationAtEverySize) {
  for (int size : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(size);
    TestingRanks ranks(factory_, size);
    const auto group = ranks.GroupOfAll();
    ExpectOk(TestingRanks::Run(group, CheckEverything));
  }
}

TEST_P(CommConformance, SubsetsInAnyOrder) {
  TestingRanks ranks(factory_, 5);
  const std::vector<std::vector<int>> subsets = {{4, 1}, {3, 0, 2}, {2}, {1, 4}, {4, 3, 2, 1, 0}};
  for (const auto& members : subsets) {
    const auto group = ranks.Group(members);
    for (size_t r = 0; r < group.size(); ++r) {
      EXPECT_EQ(group[r]->Rank(), static_cast<int>(r));
      EXPECT_EQ(group[r]->Size(), static_cast<int>(members.size()));
    }
    ExpectOk(TestingRanks::Run(group, CheckEverything));
  }
}

TEST_P(CommConformance, ManyGroupsAtOnce) {
  TestingRanks ranks(factory_, 4);
  std::vector<std::vector<std::unique_ptr<Communicator>>> groups;
  const std::vector<std::vector<int>> subsets = {{0, 1}, {2, 3}, {0, 1, 2, 3}, {1, 3}, {0, 2}};
  for (int i = 0; i < 10; ++i) groups.push_back(ranks.Group(subsets[i % subsets.size()]));
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&] { ExpectOk(TestingRanks::Run(group, CheckEverything)); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(CommConformance, TwoGroupsOfTheSameRanksAreIndependent) {
  TestingRanks ranks(factory_, 3);
  const auto computes = ranks.GroupOfAll(), moves = ranks.GroupOfAll();
  // The first group waits for rank 2, which comes only when all of the second has run.
  std::atomic<int> moved = 0;
  std::thread mover([&] {
    ExpectOk(TestingRanks::Run(moves, [&](Communicator* comm) {
      for (int i = 0; i < 3; ++i) {
        if (auto status = CheckRing(comm); !status.ok()) return status;
      }
      ++moved;
      moved.notify_all();
      return absl::OkStatus();
    }));
  });
  ExpectOk(TestingRanks::Run(computes, [&](Communicator* comm) {
    if (comm->Rank() == 2) {
      for (int seen = moved; seen < 3; seen = moved) moved.wait(seen);
    }
    return CheckAllReduce(comm);
  }));
  mover.join();
}

TEST_P(CommConformance, CallsWithoutDataMeet) {
  TestingRanks ranks(factory_, 4);
  std::vector<std::atomic<int>> came(20);
  const auto meet = [](int kind, Communicator* comm) {
    const std::vector<std::span<const std::byte>> send(comm->Size());
    const std::vector<std::span<std::byte>> receive(comm->Size());
    if (kind == 0) return comm->AllReduce(nullptr, 0, DType::kF32, Later());
    if (kind == 1) return comm->AllGather({}, {}, Later());
    if (kind == 2) return comm->ReduceScatter(nullptr, nullptr, 0, DType::kF32, Later());
    return comm->AllToAll(send, receive, Later());
  };
  ExpectOk(TestingRanks::Run(ranks.GroupOfAll(), [&](Communicator* comm) {
    for (int i = 0; i < 20; ++i) {
      ++came[i];
      if (auto status = meet(i % 4, comm); !status.ok()) return status;
      if (came[i] != comm->Size()) return Expect(false, "OK before all came");
    }
    return absl::OkStatus();
  }));
}

// However short: where the call was OK, the next is not.
TEST_P(CommConformance, AFailureElsewhereBreaksTheRankThatHadItsOk) {
  TestingRanks ranks(factory_, 3);
  const auto group = ranks.GroupOfAll();
  TestingRanks::Run(group, [&](Communicator* comm) {
    Bytes data(16);
    if (comm->Rank() == 1) comm->Abort(absl::CancelledError("enough"));
    return comm->Broadcast(data, 0, Later());
  });
  ExpectOk(TestingRanks::Run(group, [](Communicator* comm) {
    const auto met = comm->AllReduce(nullptr, 0, DType::kF32, Later());
    return Expect(absl::IsUnavailable(met), "not broken");
  }));
}

TEST_P(CommConformance, AMemberMayComeLate) {
  TestingRanks ranks(factory_, 2);
  const std::vector<int> members = {0, 1};
  const auto addresses = ranks.Addresses(members);
  auto early = ranks.fabric(0)->MakeGroup({1, 1}, addresses, 0);
  ASSERT_TRUE(early.ok()) << early.status();
  // Rank 0's messages are on their way before rank 1 has heard of the group.
  std::atomic<bool> called = false;
  absl::Status first;
  std::thread thread([&] {
    called = true;
    called.notify_all();
    first = CheckEverything(early->get());
  });
  called.wait(false);
  auto late = ranks.fabric(1)->MakeGroup({1, 1}, addresses, 1);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_TRUE(CheckEverything(late->get()).ok());
  thread.join();
  EXPECT_TRUE(first.ok()) << first;
}

TEST_P(CommConformance, RefusesWrongMembers) {
  TestingRanks ranks(factory_, 3);
  const std::vector<int> members = {0, 1}, twice = {0, 0}, others = {1, 2};
  const auto refused = [&](std::vector<std::string> addresses, int rank, const char* names) {
    const auto made = ranks.fabric(0)->MakeGroup({9, 9}, addresses, rank);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
    EXPECT_NE(std::string(made.status().message()).find(names), std::string::npos) << made.status();
  };
  refused(ranks.Addresses(twice), 0, "rank 1");
  refused(ranks.Addresses(others), 0, "rank 0");
  refused(ranks.Addresses(members), 2, "rank 2");
  refused(ranks.Addresses(members), -1, "rank -1");
  refused({ranks.fabric(0)->Address(), "nonsense"}, 0, "rank 1");
  refused({ranks.fabric(0)->Address(), ""}, 0, "rank 1");
  std::string torn = ranks.fabric(1)->Address();
  torn[0] ^= 1;
  refused({ranks.fabric(0)->Address(), torn}, 0, "rank 1");
  refused({}, 0, "rank 0");
}

TEST_P(CommConformance, AnIdServesOneGroupOfTheSameMembers) {
  TestingRanks ranks(factory_, 3);
  const std::vector<int> pair = {0, 1}, other = {0, 2};
  const auto first = ranks.fabric(0)->MakeGroup({5, 5}, ranks.Addresses(pair), 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = ranks.fabric(0)->MakeGroup({5, 5}, ranks.Addresses(pair), 0);
  EXPECT_TRUE(absl::IsAlreadyExists(again.status())) << again.status();
  EXPECT_TRUE(ranks.fabric(0)->MakeGroup({5, 5}, ranks.Addresses(other), 0).ok());
}

TEST_P(CommConformance, SizesThatDifferAreInternalOnBoth) {
  for (size_t bytes : {3, 100000}) {
    TestingRanks ranks(factory_, 2);
    const auto group = ranks.GroupOfAll();
    const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
      const int other = 1 - comm->Rank();
      const Bytes out(bytes);
      Bytes in(bytes + (comm->Rank() == 0 ? 1 : 0));  // rank 0 expects a byte too many
      std::vector<std::span<const std::byte>> send(2);
      std::vector<std::span<std::byte>> receive(2);
      send[other] = out;
      receive[other] = in;
      return comm->AllToAll(send, receive, Later());
    });
    for (const auto& end : ends) EXPECT_TRUE(absl::IsInternal(end)) << end;
    ExpectOk(TestingRanks::Run(group, CheckBroken));
    ExpectOk(TestingRanks::Run(ranks.GroupOfAll(), CheckEverything));
  }
}

TEST_P(CommConformance, CountsThatDifferAreInternalOnBoth) {
  TestingRanks ranks(factory_, 2);
  for (int64_t count : {10, 100000}) {
    const auto ends = TestingRanks::Run(ranks.GroupOfAll(), [&](Communicator* comm) {
      std::vector<float> data(count + comm->Rank());
      return comm->AllReduce(data.data(), count + comm->Rank(), DType::kF32, Later());
    });
    for (const auto& end : ends) EXPECT_TRUE(absl::IsInternal(end)) << end;
  }
  const auto ends = TestingRanks::Run(ranks.GroupOfAll(), [&](Communicator* comm) {
    std::vector<float> data(10), out(20);
    if (comm->Rank() == 0) return comm->AllReduce(data.data(), 10, DType::kF32, Later());
    return comm->AllGather(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(out)),
                           Later());
  });
  for (const auto& end : ends) EXPECT_TRUE(absl::IsInternal(end)) << end;
}

TEST_P(CommConformance, AbortEndsEveryCallWithItsReason) {
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    TestingRanks ranks(factory_, 3);
    const auto group = ranks.GroupOfAll();
    const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
      if (comm->Rank() == 1) {
        comm->Abort(absl::CancelledError("step 17 was cancelled"));
        return absl::UnavailableError("step 17 was cancelled");
      }
      return CallOnce(kind, comm, Later());
    });
    for (const auto& end : ends) {
      EXPECT_TRUE(absl::IsUnavailable(end)) << end;
      EXPECT_NE(std::string(end.message()).find("step 17 was cancelled"), std::string::npos) << end;
    }
    ExpectOk(TestingRanks::Run(group, CheckBroken));
    group[0]->Abort(absl::CancelledError("again"));
    ExpectOk(TestingRanks::Run(ranks.GroupOfAll(), CheckAllToAll));
  }
}

TEST_P(CommConformance, AbortFromAnotherThreadEndsABlockedCall) {
  TestingRanks ranks(factory_, 2);
  const auto group = ranks.GroupOfAll();
  std::thread caller([&] {
    const auto end = CallOnce(0, group[0].get(), Later());  // rank 1 never calls
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  });
  group[0]->Abort(absl::CancelledError("enough"));
  caller.join();
  ExpectOk(TestingRanks::Run(group, CheckBroken));
}

TEST_P(CommConformance, AGroupAbortedBeforeItIsMadeIsBroken) {
  TestingRanks ranks(factory_, 2);
  const std::vector<int> members = {0, 1};
  const auto addresses = ranks.Addresses(members);
  auto first = ranks.fabric(0)->MakeGroup({3, 3}, addresses, 0);
  ASSERT_TRUE(first.ok());
  (*first)->Abort(absl::CancelledError("never mind"));
  first->reset();
  auto second = ranks.fabric(1)->MakeGroup({3, 3}, addresses, 1);
  ASSERT_TRUE(second.ok());
  const auto end = CallOnce(0, second->get(), Later());
  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
}

TEST_P(CommConformance, ARankThatNeverCallsEndsTheCallByTheDeadline) {
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    TestingRanks ranks(factory_, 3);
    const auto group = ranks.GroupOfAll();
    const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
      return comm->Rank() == 2 ? absl::UnavailableError("stalls") : CallOnce(kind, comm, Soon());
    });
    for (const auto& end : ends) EXPECT_TRUE(Ended(end)) << end;
    // Word reaches the stalled one, whenever it calls.
    EXPECT_TRUE(absl::IsUnavailable(CallOnce(kind, group[2].get(), Later())));
    ExpectOk(TestingRanks::Run(group, CheckBroken));
    ExpectSurvivorsWork(&ranks, 2);
  }
}

TEST_P(CommConformance, OneEarlyDeadlineEndsTheCallOnAll) {
  TestingRanks ranks(factory_, 4);
  const auto group = ranks.GroupOfAll();
  const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
    if (comm->Rank() == 3) return absl::UnavailableError("stalls");
    return CallOnce(0, comm, comm->Rank() == 1 ? Soon() : Later());
  });
  for (const auto& end : ends) EXPECT_TRUE(Ended(end)) << end;
  ExpectSurvivorsWork(&ranks, 3);
}

TEST_P(CommConformance, ARankThatLeavesEndsTheCall) {
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    TestingRanks ranks(factory_, 3);
    auto group = ranks.GroupOfAll();
    ExpectOk(TestingRanks::Run(group, CheckBroadcast));
    group.erase(group.begin());
    const auto ends =
        TestingRanks::Run(group, [&](Communicator* comm) { return CallOnce(kind, comm, Later()); });
    for (const auto& end : ends) EXPECT_TRUE(absl::IsUnavailable(end)) << end;
    ExpectSurvivorsWork(&ranks, 0);
  }
}

// What a rank gave before it left still arrives.
TEST_P(CommConformance, LeavingAfterTheLastCallHarmsNobody) {
  TestingRanks ranks(factory_, 4);
  for (int round = 0; round < 20; ++round) {
    auto group = ranks.GroupOfAll();
    std::vector<std::thread> threads;
    for (auto& comm : group) {
      threads.emplace_back([round, mine = std::move(comm)]() mutable {
        Bytes few(16);
        const auto status = round % 2 == 0 ? CallOnce(3, mine.get(), Later())
                                           : mine->Broadcast(few, round % 4, Later());
        EXPECT_TRUE(status.ok()) << status;
        mine.reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, CommConformance,
                         testing::Values("Local", "Faultless", "UcxSharedMemory", "UcxTcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace skein::engine
