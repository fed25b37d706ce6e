#include "engine/comm/device/kernels/kernel_communicator.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/comm/call_bytes.h"
#include "engine/cuda/collectives/collectives.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

// A kernel waits for work that the others have queued before theirs.
constexpr auto kKernelWaitMin = std::chrono::seconds(1);

constexpr uint32_t kBroken = 1;  // copied to the word that kernels look at

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
      return absl::UnavailableError(
          absl::StrCat("kernels: rank ", report.peer, "'s GPU did not arrive in time (block ",
                       report.lane, " of the kernel, meeting ", report.epoch, ")"));
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

// Kernels that wait for another rank end at once, and none is queued any more.
void KernelCommunicator::Abort(const absl::Status& reason) {
  hosts_->Abort(reason);
  below_->Abort(reason);
  aborted_ = true;
  std::byte* const word = broken_word_.load();
  // Before the hosts met for a kernel there is none to be told, and they will not meet any more.
  if (word == nullptr || !written_ || parts_.copies == nullptr) return;
  // If the copy fails, the kernels end at their own time limit.
  (void)parts_.copies->Copy(word, &kBroken, sizeof kBroken);
}

KernelCommunicator::~KernelCommunicator() {
  memory_->GiveBack(std::move(lot_), written_, Clock::now());
}

// The hosts' meetings carry it.
void KernelCommunicator::Tag(uint64_t tag) {
  hosts_->Tag(tag);
  below_->Tag(tag);
  tagged_ = true;
  met_ = false;
}

absl::Status KernelCommunicator::TakeMemory(PeerGroup* group) {
  const auto take = [this](size_t bytes) { return memory_->Take(bytes, Clock::now(), &lot_); };
  const auto memory = take(PeerMemoryBytes(parts_.shape, Size()));
  if (!memory.ok()) return memory.status();
  const auto epochs = take(PeerEpochsBytes(parts_.shape));
  if (!epochs.ok()) return epochs.status();
  const auto report = take(sizeof(PeerReport));
  if (!report.ok()) return report.status();
  group->memory[Rank()] = *memory;
  group->epochs = reinterpret_cast<uint32_t*>(*epochs);
  group->report = reinterpret_cast<PeerReport*>(*report);
  return absl::OkStatus();
}

absl::Status KernelCommunicator::Offer(PeerGroup* group, Greeting* own) {
  if (Size() > kPeerRanksMax) {
    return absl::FailedPreconditionError("it has more ranks than kernels serve");
  }
  const absl::Status taken = TakeMemory(group);
  own->can = absl::IsUnavailable(taken) ? Can::kLater : Can::kNo;
  if (!taken.ok()) return taken;
  const absl::StatusOr<PeerPlace> exported = parts_.opener->Export(group->memory[Rank()]);
  if (!exported.ok()) return exported.status();
  own->place = *exported;
  own->can = Can::kYes;
  return absl::OkStatus();
}

absl::Status KernelCommunicator::OpenAll(std::span<const Greeting> all, PeerGroup* group,
                                         Greeting* own) {
  own->can = Can::kNo;
  for (int r = 0; r < Size(); ++r) {
    if (r == Rank()) continue;
    absl::StatusOr<std::shared_ptr<std::byte>> opened =
        parts_.opener->Open(all[static_cast<size_t>(r)].place);
    if (!opened.ok()) return opened.status();
    group->memory[r] = opened->get();
    lot_.opened.push_back(*std::move(opened));
  }
  own->can = Can::kYes;
  return absl::OkStatus();
}

// Where one rank cannot, all take the fabric below; where one only has to wait for memory, the
// group fails at all, to be made again later.
absl::Status KernelCommunicator::SetUp(CommDeadline deadline) {
  if (set_up_) return absl::OkStatus();
  if (aborted_) return WhyBroken(deadline);
  PeerGroup group{.ranks = Size(), .rank = Rank(), .shape = parts_.shape};
  Greeting own;
  std::vector<Greeting> all;
  absl::Status why = Offer(&group, &own);
  absl::Status status = Gather(hosts_.get(), own, &all, deadline);
  const auto any = [&all](Can can) {
    return std::any_of(all.begin(), all.end(), [can](const Greeting& o) { return o.can == can; });
  };
  if (status.ok() && !any(Can::kNo) && !any(Can::kLater)) {
    why = OpenAll(all, &group, &own);
    status = Gather(hosts_.get(), own, &all, deadline);
  }
  if (!status.ok()) return Broken(status);
  if (any(Can::kNo)) {
    TakeBelow(own.can == Can::kNo ? why : absl::OkStatus());
  } else if (any(Can::kLater)) {
    return Broken(why.ok()
                      ? absl::UnavailableError("another rank's GPU memory is not safe to reuse "
                                               "yet; make the group again later")
                      : why);
  } else {
    group_ = group;
    broken_word_ = group.memory[Rank()];
  }
  set_up_ = true;
  return absl::OkStatus();
}

void KernelCommunicator::TakeBelow(const absl::Status& why) {
  memory_->GiveBack(std::exchange(lot_, {}), /*written=*/false, Clock::now());
  if (parts_.warn == nullptr) return;
  parts_.warn(absl::StrCat("steps of a group of ", Size(),
                           " instances do without kernels for their collectives: ",
                           why.ok() ? "another instance cannot" : std::string(why.message())));
}

absl::Status KernelCommunicator::Begin(Operation operation, bool asks, uint64_t size,
                                       std::span<const uint64_t> sent,
                                       std::span<const uint64_t> expected, CommDeadline deadline) {
  if (asks && queued_) {
    const absl::Status settled = Settle();
    if (!settled.ok()) return settled;
    queued_ = false;
  }
  if (tagged_ && met_ && !asks) {
    if (aborted_) return WhyBroken(deadline);
    if (Clock::now() < std::min(deadline, queue_until_)) return absl::OkStatus();
    return Broken(absl::DeadlineExceededError("the time to queue a step's kernels is over"));
  }
  met_ = true;
  queue_until_ = Clock::now() + parts_.wait_max;
  // A step that begins with a call without data queues kernels behind it, here or at other ranks.
  if (tagged_ || !asks || operation == kAllToAll) written_ = true;
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
  const auto left = std::min(deadline, queue_until_) - Clock::now();
  group_->wait_ns_max =
      std::chrono::nanoseconds(
          std::max(left, std::min<Clock::duration>(kKernelWaitMin, parts_.wait_max)))
          .count();
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
  Count(AllReduceBytes(Size(), static_cast<uint64_t>(count) * BytesOf(dtype)));
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
  Count(AllGatherBytes(Size(), send.size()));
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
  if (!status.ok()) return status;
  PeerAllToAll(GroupUntil(deadline), send, receive, parts_.stream);
  Count(AllToAllBytes(Rank(), send, receive));
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
