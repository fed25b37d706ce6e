#include "engine/comm/paths/path_fabric.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/comm/device/device_fabric.h"
#include "engine/comm/group_digest.h"
#include "engine/comm/paths/member_address.h"
#include "engine/comm/paths/path_parts.h"
#include "engine/comm/warn_once.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::engine {
namespace {

constexpr size_t kTrialWords = 8;  // of a rank
// More than a group has ranks, and than a node tries groups at once.
constexpr size_t kGroupRanks = 256, kGroupTrials = 64;

// A group that waits for the trial of another way has another name; no id that callers use ends so.
GroupId SpareOf(GroupId id) {
  return {id.high ^ 0xd1b54a32d192ed03u, id.low ^ 0x9e3779b97f4a7c15u};
}

// What `rank` sends in a group's trial.
uint64_t TrialWord(GroupId id, int rank, size_t word) {
  return Mix64(id.high ^ (id.low * kMix64Step) ^
               (static_cast<uint64_t>(rank + 1) * kTrialWords + word));
}

// OK only when every rank has come here.
absl::Status Meet(Communicator* group, CommDeadline deadline) {
  return group->AllReduce(nullptr, 0, DType::kF32, deadline);
}

}  // namespace

// Memory of the device for `count` trials at once of at most `ranks` ranks, kept until the fabric's
// end: others may have it open. All of it is there from the start, for a trial asks nothing of the
// device's own stream, which may be recording a graph just then.
class PathFabric::Cells {
 public:
  static absl::StatusOr<std::unique_ptr<Cells>> Make(std::shared_ptr<Device> device, size_t ranks,
                                                     size_t count) {
    const size_t each = ranks * kTrialWords * sizeof(uint64_t);
    const absl::StatusOr<void*> memory = device->Alloc(count * each);
    if (!memory.ok()) return memory.status();
    return std::unique_ptr<Cells>(new Cells(std::move(device), *memory, each, count));
  }
  ~Cells() { device_->Free(memory_, count_ * each_); }

  absl::StatusOr<std::byte*> Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > each_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the trial of this path takes ", bytes, " bytes, the limit is ", each_));
    }
    if (free_.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", count_, " paths are being tried at once"));
    }
    std::byte* const cell = free_.back();
    free_.pop_back();
    return cell;
  }

  void GiveBack(std::byte* cell) {
    const std::lock_guard lock(mutex_);
    free_.push_back(cell);
  }

 private:
  Cells(std::shared_ptr<Device> device, void* memory, size_t each, size_t count)
      : device_(std::move(device)),
        memory_(static_cast<std::byte*>(memory)),
        each_(each),
        count_(count) {
    for (size_t i = 0; i < count; ++i) free_.push_back(memory_ + i * each);
  }

  const std::shared_ptr<Device> device_;
  std::byte* const memory_;
  const size_t each_, count_;  // bytes of a cell, cells
  std::mutex mutex_;
  std::vector<std::byte*> free_;
};

class PathFabric::HostGroups final : public Fabric {
 public:
  explicit HostGroups(PathFabric* fabric) : fabric_(fabric) {}

  const std::string& Address() const override { return fabric_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    const absl::StatusOr<Members> members = fabric_->MembersOf(addresses, rank);
    if (!members.ok()) return members.status();
    ++fabric_->groups_made_;
    return fabric_->MakeBelow(Use::kGroup, CommPath::kHost, id, *members);
  }

 private:
  PathFabric* const fabric_;
};

PathFabric::PathFabric(CommMember self, CommWays ways, CommDevice device, PathFabricOptions options)
    : self_(std::move(self)),
      ways_(std::move(ways)),
      on_(std::move(device)),
      options_(std::move(options)),
      warn_(EachOnce(options_.warn)),
      address_(SealMember({self_, ways_.host->Address()})),
      ledger_(std::make_shared<CommLedger>()),
      hosts_(std::make_unique<HostGroups>(this)) {
  SKEIN_CHECK(self_.gpu.empty() == (on_.device == nullptr));
  SKEIN_CHECK((on_.device == nullptr) == (on_.copies == nullptr));
  SKEIN_CHECK(self_.realm.empty() == (ways_.ipc == nullptr));
  SKEIN_CHECK((self_.nccl_version == 0) == (ways_.nccl == nullptr));
  SKEIN_CHECK((ways_.lanes == nullptr) == (ways_.nccl == nullptr));
}

PathFabric::~PathFabric() = default;

absl::StatusOr<std::unique_ptr<PathFabric>> PathFabric::Make(CommMember self, CommWays ways,
                                                             CommDevice device,
                                                             PathFabricOptions options) {
  const std::shared_ptr<Device> on = device.device;
  std::unique_ptr<PathFabric> fabric(
      new PathFabric(std::move(self), std::move(ways), std::move(device), std::move(options)));
  if (on == nullptr) return fabric;
  auto of_groups = Cells::Make(on, kGroupRanks, kGroupTrials);
  if (!of_groups.ok()) return of_groups.status();
  auto of_pairs = Cells::Make(on, 2, static_cast<size_t>(fabric->options_.pair_trials_max));
  if (!of_pairs.ok()) return of_pairs.status();
  fabric->group_cells_ = *std::move(of_groups);
  fabric->pair_cells_ = *std::move(of_pairs);
  const absl::Status cleared = on->Synchronize();
  if (!cleared.ok()) return cleared;
  return fabric;
}

absl::StatusOr<std::unique_ptr<Communicator>> PathFabric::MakeGroup(
    GroupId id, std::span<const std::string> addresses, int rank) {
  return Make(Use::kGroup, id, addresses, rank);
}

absl::StatusOr<std::unique_ptr<Communicator>> PathFabric::OpenRing(
    GroupId name, std::span<const std::string> addresses, int rank) {
  return Make(Use::kRing, name, addresses, rank);
}

bool PathFabric::TakesIpc(std::span<const std::string> addresses) {
  std::vector<CommMember> members;
  for (const std::string& address : addresses) {
    const std::optional<MemberAddress> member = OpenMember(address);
    if (!member.has_value()) return false;
    members.push_back(member->member);
  }
  const absl::StatusOr<PathChoice> choice = ChoosePath(members);
  return choice.ok() && choice->path == CommPath::kIpc;
}

FabricCounts PathFabric::Made() const {
  const uint64_t lanes = ways_.lanes == nullptr ? 0 : ways_.lanes->Made().groups;
  FabricCounts made = ways_.host->Made();
  made.groups = groups_made_.load() + lanes;
  return made;
}

absl::StatusOr<PathFabric::Members> PathFabric::MembersOf(std::span<const std::string> addresses,
                                                          int rank) const {
  const absl::Status checked = CheckMembers(addresses, rank, address_, [](const std::string& one) {
    return OpenMember(one).has_value();
  });
  if (!checked.ok()) return checked;
  Members members;
  members.rank = rank;
  members.addresses.assign(addresses.begin(), addresses.end());
  for (const std::string& address : addresses) {
    MemberAddress opened = *OpenMember(address);
    members.all.push_back(std::move(opened.member));
    members.host.push_back(std::move(opened.host));
  }
  return members;
}

absl::StatusOr<std::unique_ptr<Communicator>> PathFabric::Make(
    Use use, GroupId id, std::span<const std::string> addresses, int rank) {
  const absl::StatusOr<Members> members = MembersOf(addresses, rank);
  if (!members.ok()) return members.status();
  const absl::StatusOr<PathChoice> choice = ChoosePath(members->all);
  if (!choice.ok()) return choice.status();
  const int ranks = static_cast<int>(addresses.size());
  if (on_.device != nullptr) ledger_->Explain(ranks, choice->path, choice->why_not);
  if (use == Use::kGroup) ++groups_made_;
  if (choice->path != CommPath::kHost && !choice->wanted) {
    absl::StatusOr<Tried> tried = MakeTried(use, *choice, id, *members);
    if (!tried.ok()) return tried.status();
    const auto taken = [path = choice->path, group = tried->group.get()] {
      return group->OnFirst() ? path : CommPath::kHost;
    };
    return MakeMeteredCommunicator(
        std::move(tried->group), ledger_,
        {.path = taken, .why_not = [refusal = tried->refusal] { return refusal->Get(); }});
  }
  auto below = MakeBelow(use, choice->path, id, *members);
  if (!below.ok()) return below;
  const std::string why_not = choice->wanted ? "host: it is set as the path" : choice->why_not;
  return MakeMeteredCommunicator(
      OnDevice(choice->path, *std::move(below)), ledger_,
      {.path = [path = choice->path] { return path; }, .why_not = [why_not] { return why_not; }});
}

absl::StatusOr<std::unique_ptr<Communicator>> PathFabric::MakeBelow(Use use, CommPath path,
                                                                    GroupId id,
                                                                    const Members& members) {
  if (use == Use::kRing && path == CommPath::kHost) {
    return ways_.host->OpenRing(id, members.host, members.rank);
  }
  if (use != Use::kGroup && path == CommPath::kNccl) {
    return ways_.lanes->OpenRing(id, members.host, members.rank);
  }
  Fabric* const way = path == CommPath::kIpc    ? ways_.ipc.get()
                      : path == CommPath::kNccl ? ways_.nccl.get()
                                                : ways_.host.get();
  return way->MakeGroup(id, members.host, members.rank);
}

std::unique_ptr<Communicator> PathFabric::OnDevice(CommPath path,
                                                   std::unique_ptr<Communicator> below) {
  if (on_.device == nullptr) return below;
  return MakeDeviceCommunicator(
      std::move(below), on_.device,
      path == CommPath::kHost ? DevicePath::kHostStaged : DevicePath::kOnDevice);
}

// If this rank alone cannot use a path at all, it breaks the path for the ranks that wait for it.
absl::StatusOr<PathFabric::Tried> PathFabric::MakeTried(Use use, const PathChoice& choice,
                                                        GroupId id, const Members& members) {
  const CommPath path = choice.path;
  auto first = MakeBelow(use, path, id, members);
  if (!first.ok()) {
    const absl::Status why = first.status();
    first = MakeBelow(use, CommPath::kHost, id, members);
    if (!first.ok()) return first.status();
    (*first)->Abort(absl::UnavailableError(
        absl::StrCat("rank ", members.rank, ": ", std::string(why.message()))));
  }
  auto second = MakeBelow(use, CommPath::kHost, SpareOf(id), members);
  if (!second.ok()) return second.status();
  const bool pairs_tell = use == Use::kRing;
  Cells* const cells = use == Use::kPair ? pair_cells_.get() : group_cells_.get();
  const bool makes_lanes = use == Use::kPair && path == CommPath::kNccl;
  const int ranks = static_cast<int>(members.all.size());
  const auto refusal = std::make_shared<Refusal>();
  const Trial trial = {
      .meet = [below = second->get()](CommDeadline deadline) { return Meet(below, deadline); },
      .run =
          [this, id, path, pairs_tell, members, cells, below = first->get()](
              CommDeadline deadline, const std::atomic<bool>& left) {
            const absl::Status status = pairs_tell ? PairsWork(path, members, deadline, left)
                                                   : Try(below, id, cells, deadline);
            return status.ok() ? Meet(below, deadline) : status;
          },
      .max = makes_lanes ? options_.lanes_max : options_.trial_max,
      .refused =
          [this, choice, ranks, refusal](const absl::Status& why) {
            if (!choice.wanted) refusal->Put(Refused(choice.path, ranks, why));
          },
      .only_tries = makes_lanes};
  auto group = std::make_unique<TriedCommunicator>(
      OnDevice(path, *std::move(first)), OnDevice(CommPath::kHost, *std::move(second)), trial);
  return Tried{refusal, std::move(group)};
}

// Every rank's words reach all, in the device's memory.
absl::Status PathFabric::Try(Communicator* below, GroupId id, Cells* cells, CommDeadline deadline) {
  const auto ranks = static_cast<size_t>(below->Size()), rank = static_cast<size_t>(below->Rank());
  std::vector<uint64_t> wanted(ranks * kTrialWords), words(wanted.size(), 0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = TrialWord(id, static_cast<int>(i / kTrialWords), i % kTrialWords);
  }
  const size_t own = rank * kTrialWords;
  for (size_t i = own; i < own + kTrialWords; ++i) words[i] = wanted[i];
  const size_t bytes = words.size() * sizeof(uint64_t);
  const absl::StatusOr<std::byte*> cell = cells->Take(bytes);
  if (!cell.ok()) return cell.status();
  const absl::Status status = Exchange(below, {*cell, bytes}, bytes / ranks, &words, deadline);
  cells->GiveBack(*cell);
  if (!status.ok() || words == wanted) return status;
  return absl::UnavailableError(
      absl::StrCat("rank ", rank, " received bytes that differ from those sent"));
}

absl::Status PathFabric::Exchange(Communicator* below, std::span<std::byte> cell, size_t each,
                                  std::vector<uint64_t>* words, CommDeadline deadline) {
  CopyStream* const copies = on_.copies.get();
  const auto rank = static_cast<size_t>(below->Rank());
  absl::Status status = copies->Copy(cell.data(), words->data(), cell.size());
  const absl::Status sent = AwaitCopies(copies);
  if (status.ok()) status = sent;
  if (status.ok()) status = below->AllGather(cell.subspan(rank * each, each), cell, deadline);
  if (!status.ok()) return status;
  status = copies->Copy(words->data(), cell.data(), cell.size());
  const absl::Status came = AwaitCopies(copies);
  return status.ok() ? came : status;
}

std::string PathFabric::Refused(CommPath path, int ranks, const absl::Status& why) {
  const std::string reason =
      absl::StrCat(std::string(NameOf(path)), ": ", std::string(why.message()));
  ledger_->Explain(ranks, CommPath::kHost, reason);
  if (warn_ == nullptr) return reason;
  warn_(absl::StrCat("a group of ", ranks, " ranks goes through the host: ", reason));
  return reason;
}

std::optional<std::string> PathFabric::WhyThroughHost(const Communicator& group) const {
  const GroupWay* const way = WayOf(group);
  if (on_.device == nullptr || way == nullptr) return std::nullopt;
  if (way->path() != CommPath::kHost) return std::nullopt;
  return way->why_not();
}

}  // namespace skein::engine
