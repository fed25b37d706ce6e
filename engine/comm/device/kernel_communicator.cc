#include "engine/comm/device/kernel_communicator.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/cuda/collectives/collectives.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

// A kernel waits for work that the others have queued before theirs.
constexpr auto kKernelWaitMin = std::chrono::seconds(1);

constexpr uint32_t kBroken = 1;  // copied to the word that kernels look at

// What a rank says when a group is set up.
struct Greeting {
  PeerPlace place;
  uint64_t ok = 0;
};

template <typename T>
absl::Status Gather(Communicator* hosts, const T& own, std::vector<T>* all, CommDeadline deadline) {
  all->resize(static_cast<size_t>(hosts->Size()));
  return hosts->AllGather(std::as_bytes(std::span(&own, 1)),
                          std::as_writable_bytes(std::span(*all)), deadline);
}

absl::Status StatusOf(const PeerReport& report) {
  switch (static_cast<PeerFault>(report.fault)) {
    case PeerFault::kNone:
      return absl::OkStatus();
    case PeerFault::kLate:
      return absl::UnavailableError(absl::StrCat("kernels: rank ", report.peer,
                                                 "'s GPU did not come to lane ", report.lane,
                                                 ", meeting ", report.epoch));
    case PeerFault::kTold:
      return absl::UnavailableError("kernels: another rank's kernel gave the group up");
    case PeerFault::kDiffers:
      return absl::InternalError(
          absl::StrCat("kernels: rank ", report.peer, "'s GPU is in another call"));
  }
  return absl::InternalError("kernels: a report that is none");
}

}  // namespace

// Breaks the group for all ranks.
absl::Status KernelCommunicator::Broken(const absl::Status& status) {
  if (!status.ok()) Abort(status);
  return status;
}

// Kernels that wait for another rank end at once.
void KernelCommunicator::Abort(const absl::Status& reason) {
  hosts_->Abort(reason);
  below_->Abort(reason);
  std::byte* const word = broken_word_.load();
  if (word == nullptr || parts_.copies == nullptr) return;
  // If it cannot be told, they end a little later by themselves.
  (void)parts_.copies->Copy(word, &kBroken, sizeof kBroken);
}

KernelCommunicator::~KernelCommunicator() { memory_->GiveBack(std::move(lot_), Clock::now()); }

// The hosts' meetings carry it.
void KernelCommunicator::Tag(uint64_t tag) {
  hosts_->Tag(tag);
  below_->Tag(tag);
  tagged_ = true;
  met_ = false;
}

absl::Status KernelCommunicator::Offer(std::byte** own, PeerPlace* place) {
  if (Size() > kPeerRanksMax) return absl::UnavailableError("more ranks than kernels serve");
  const absl::StatusOr<std::byte*> memory =
      memory_->Take(PeerMemoryBytes(parts_.shape, Size()), Clock::now(), &lot_);
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<PeerPlace> exported = parts_.opener->Export(*memory);
  if (!exported.ok()) return exported.status();
  *own = *memory;
  *place = *exported;
  return absl::OkStatus();
}

absl::Status KernelCommunicator::OpenAll(std::span<const PeerPlace> places, PeerGroup* group) {
  for (int r = 0; r < Size(); ++r) {
    if (r == Rank()) continue;
    absl::StatusOr<std::shared_ptr<std::byte>> opened =
        parts_.opener->Open(places[static_cast<size_t>(r)]);
    if (!opened.ok()) return opened.status();
    group->memory[r] = opened->get();
    lot_.opened.push_back(*std::move(opened));
  }
  const auto epochs = memory_->Take(PeerEpochsBytes(parts_.shape), Clock::now(), &lot_);
  if (!epochs.ok()) return epochs.status();
  const auto report = memory_->Take(sizeof(PeerReport), Clock::now(), &lot_);
  if (!report.ok()) return report.status();
  group->epochs = reinterpret_cast<uint32_t*>(*epochs);
  group->report = reinterpret_cast<PeerReport*>(*report);
  return absl::OkStatus();
}

// Where one rank cannot, all take the fabric below.
absl::Status KernelCommunicator::SetUp(CommDeadline deadline) {
  if (set_up_) return absl::OkStatus();
  PeerGroup group{.ranks = Size(), .rank = Rank(), .shape = parts_.shape};
  Greeting own;
  std::byte* memory = nullptr;
  own.ok = Offer(&memory, &own.place).ok() ? 1 : 0;
  std::vector<Greeting> all;
  absl::Status status = Gather(hosts_.get(), own, &all, deadline);
  if (!status.ok()) return Broken(status);
  const auto all_ok = [&] {
    return std::all_of(all.begin(), all.end(), [](const Greeting& one) { return one.ok == 1; });
  };
  if (all_ok()) {
    std::vector<PeerPlace> places;
    for (const Greeting& one : all) places.push_back(one.place);
    group.memory[Rank()] = memory;
    own.ok = OpenAll(places, &group).ok() ? 1 : 0;
    status = Gather(hosts_.get(), own, &all, deadline);
    if (!status.ok()) return Broken(status);
    if (all_ok()) {
      group_ = group;
      broken_word_ = memory;
    }
  }
  set_up_ = true;
  return status;
}

absl::Status KernelCommunicator::Begin(Operation operation, bool asks, uint64_t size,
                                       std::span<const uint64_t> sent,
                                       std::span<const uint64_t> expected, CommDeadline deadline) {
  if (asks && queued_) {
    const absl::Status settled = Settle();
    if (!settled.ok()) return settled;
    queued_ = false;
  }
  if (tagged_ && met_ && !asks) return absl::OkStatus();
  met_ = true;
  return Meet(operation, size, sent, expected, deadline);
}

// Every rank looks at what all have said, so all decide alike.
absl::Status KernelCommunicator::Meet(Operation operation, uint64_t size,
                                      std::span<const uint64_t> sent,
                                      std::span<const uint64_t> expected, CommDeadline deadline) {
  const auto ranks = static_cast<size_t>(Size());
  const size_t words = 2 + 2 * ranks;
  std::vector<uint64_t> own(words, 0), all(words * ranks);
  own[0] = operation;
  own[1] = size;
  std::copy(sent.begin(), sent.end(), own.begin() + 2);
  std::copy(expected.begin(), expected.end(), own.begin() + 2 + static_cast<std::ptrdiff_t>(ranks));
  const absl::Status met = hosts_->AllGather(std::as_bytes(std::span(own)),
                                             std::as_writable_bytes(std::span(all)), deadline);
  if (!met.ok()) return Broken(met);
  for (size_t a = 0; a < ranks; ++a) {
    const uint64_t* of_a = &all[a * words];
    if (of_a[0] != all[0] || of_a[1] != all[1]) {
      return Broken(absl::InternalError(
          absl::StrCat("rank ", a, " is in another call than rank 0, or in one of another size")));
    }
    for (size_t b = 0; b < ranks; ++b) {
      const uint64_t gives = of_a[2 + b], takes = all[b * words + 2 + ranks + a];
      if (gives == takes) continue;
      return Broken(absl::InternalError(
          absl::StrCat("rank ", a, " sends ", gives, " bytes where rank ", b, " expects ", takes)));
    }
  }
  return absl::OkStatus();
}

absl::Status KernelCommunicator::Settle() {
  PeerReport report;
  absl::Status status =
      parts_.device->Copy(&report, group_->report, sizeof report, CopyKind::kDeviceToHost);
  if (status.ok()) status = parts_.device->Synchronize();
  if (status.ok()) status = StatusOf(report);
  return Broken(status);
}

const PeerGroup& KernelCommunicator::GroupUntil(CommDeadline deadline) {
  queued_ = true;
  const auto now = Clock::now();
  const auto left = deadline > now + kKernelWaitMax
                        ? Clock::duration(kKernelWaitMax)
                        : std::max<Clock::duration>(deadline - now, kKernelWaitMin);
  group_->wait_ns_max = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return *group_;
}

absl::Status KernelCommunicator::AllReduce(void* data, int64_t count, DType dtype,
                                           CommDeadline deadline) {
  SKEIN_CHECK(count >= 0);
  absl::Status status = SetUp(deadline);
  if (!status.ok()) return status;
  if (!ByKernels()) return below_->AllReduce(data, count, dtype, deadline);
  const uint64_t size = static_cast<uint64_t>(count) * 4 + static_cast<uint64_t>(dtype);
  status = Begin(kAllReduce, count == 0, size, {}, {}, deadline);
  if (!status.ok() || count == 0 || Size() == 1) return status;
  PeerAllReduce(GroupUntil(deadline), data, count, dtype, parts_.stream);
  return status;
}

absl::Status KernelCommunicator::AllGather(std::span<const std::byte> send,
                                           std::span<std::byte> receive, CommDeadline deadline) {
  SKEIN_CHECK(receive.size() == send.size() * static_cast<size_t>(Size()));
  absl::Status status = SetUp(deadline);
  if (!status.ok()) return status;
  if (!ByKernels() || Size() == 1) return below_->AllGather(send, receive, deadline);
  status = Begin(kAllGather, send.empty(), send.size(), {}, {}, deadline);
  if (!status.ok() || send.empty()) return status;
  PeerAllGather(GroupUntil(deadline), send.data(), static_cast<int64_t>(send.size()),
                receive.data(), parts_.stream);
  return status;
}

absl::Status KernelCommunicator::AllToAll(std::span<const std::span<const std::byte>> send,
                                          std::span<const std::span<std::byte>> receive,
                                          CommDeadline deadline) {
  absl::Status status = SetUp(deadline);
  if (!status.ok()) return status;
  if (!ByKernels() || Size() == 1) return below_->AllToAll(send, receive, deadline);
  std::vector<uint64_t> sent, expected;
  for (const auto& part : send) sent.push_back(part.size());
  for (const auto& part : receive) expected.push_back(part.size());
  const auto is_empty = [](uint64_t bytes) { return bytes == 0; };
  // Without parts of its own a rank does not know whether others have some.
  const bool asks = !tagged_ && std::all_of(sent.begin(), sent.end(), is_empty) &&
                    std::all_of(expected.begin(), expected.end(), is_empty);
  status = Begin(kAllToAll, asks, 0, sent, expected, deadline);
  // Others may have parts for one another: each of them meets every rank.
  if (status.ok()) PeerAllToAll(GroupUntil(deadline), send, receive, parts_.stream);
  return status;
}

absl::Status KernelCommunicator::ReduceScatter(const void* send, void* receive, int64_t count,
                                               DType dtype, CommDeadline deadline) {
  return Broken(below_->ReduceScatter(send, receive, count, dtype, deadline));
}

absl::Status KernelCommunicator::SendRecv(std::span<const std::byte> send, int to,
                                          std::span<std::byte> receive, int from,
                                          CommDeadline deadline) {
  return Broken(below_->SendRecv(send, to, receive, from, deadline));
}

absl::Status KernelCommunicator::Broadcast(std::span<std::byte> data, int root,
                                           CommDeadline deadline) {
  return Broken(below_->Broadcast(data, root, deadline));
}

}  // namespace skein::engine
