#include "engine/comm/conformance/checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/comm/conformance/values.h"
#include "engine/comm/testing/ranks.h"

namespace skein::engine {
namespace {

// Counts that divide by nothing, none, one, and enough for several pieces.
constexpr int64_t kCounts[] = {0, 1, 7, 1001, 150001};
// Elements of all ranks together that make several pieces at each of up to 8.
constexpr int64_t kScattered = 300000;
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

absl::Status CheckReduceScatter(Communicator* comm) {
  const int64_t much = kScattered / comm->Size() + 1;
  for (DType dtype : kDTypes) {
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1001}, much}) {
      const Bytes& send = ValuesOf(comm->Rank(), count * comm->Size(), dtype);
      const Bytes& sum = SumOf(comm->Size(), count * comm->Size(), dtype);
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

absl::Status CheckOneWay(Communicator* comm) {
  if (comm->Size() < 2) return absl::OkStatus();
  Bytes data = Text(comm->Rank(), 100000);
  if (comm->Rank() == 0) return comm->SendRecv(data, 1, {}, 1, Later());
  if (comm->Rank() > 1) return absl::OkStatus();
  auto status = comm->SendRecv({}, 0, data, 0, Later());
  return status.ok() ? Expect(data == Text(0, 100000), "one way") : status;
}

}  // namespace

absl::Status Expect(bool condition, const char* what) {
  return condition ? absl::OkStatus() : absl::DataLossError(what);
}

void ExpectOk(const std::vector<absl::Status>& ends) {
  for (size_t r = 0; r < ends.size(); ++r) EXPECT_TRUE(ends[r].ok()) << "rank " << r << ends[r];
}

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
    const int rounds = bytes < (1 << 20) ? comm->Size() : std::min(comm->Size(), 2);
    for (int round = 1; round <= rounds; ++round) {
      auto status = comm->SendRecv(here, next, there, previous, Later());
      if (!status.ok()) return status;
      std::swap(here, there);
      const int owner = (comm->Rank() - round + 2 * comm->Size()) % comm->Size();
      if (here != Text(owner, bytes)) return Expect(false, "SendRecv");
    }
  }
  return absl::OkStatus();
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

absl::Status CheckEverything(Communicator* comm) {
  for (const auto check : {CheckAllReduce, CheckReduceScatter, CheckAllGather, CheckAllToAll,
                           CheckRing, CheckOneWay, CheckBroadcast}) {
    if (auto status = check(comm); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckEveryKind(Communicator* comm) {
  constexpr int64_t kCount = 20001;  // 80 KB: offered
  const int n = comm->Size();
  const Bytes& own = ValuesOf(comm->Rank(), kCount, DType::kF32);
  const Bytes& sum = SumOf(n, kCount, DType::kF32);
  Bytes data = own;
  auto status = comm->AllReduce(data.data(), kCount, DType::kF32, Later());
  if (!status.ok()) return status;
  if (data != sum) return Expect(false, "AllReduce's bits");
  const Bytes& all = SumOf(n, kCount * n, DType::kF32);
  status = comm->ReduceScatter(ValuesOf(comm->Rank(), kCount * n, DType::kF32).data(), data.data(),
                               kCount, DType::kF32, Later());
  if (!status.ok()) return status;
  if (!std::equal(data.begin(), data.end(), all.begin() + comm->Rank() * data.size())) {
    return Expect(false, "ReduceScatter's bits");
  }
  Bytes gathered(own.size() * n);
  status = comm->AllGather(own, gathered, Later());
  if (!status.ok()) return status;
  for (int r = 0; r < n; ++r) {
    const Bytes& wanted = ValuesOf(r, kCount, DType::kF32);
    if (!std::equal(wanted.begin(), wanted.end(), gathered.begin() + r * wanted.size())) {
      return Expect(false, "AllGather");
    }
  }
  for (const auto check : {CheckAllToAll, CheckOneWay, CheckBroadcast}) {
    if (status = check(comm); !status.ok()) return status;
  }
  Bytes there(own.size());
  const int previous = (comm->Rank() + n - 1) % n;
  status = comm->SendRecv(own, (comm->Rank() + 1) % n, there, previous, Later());
  if (!status.ok()) return status;
  return Expect(there == ValuesOf(previous, kCount, DType::kF32), "SendRecv");
}

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

absl::Status CheckBroken(Communicator* comm) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (!absl::IsUnavailable(CallOnce(kind, comm, Later()))) return Expect(false, "not broken");
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
