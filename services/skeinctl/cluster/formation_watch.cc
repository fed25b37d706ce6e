// The readings of skeinctl formation --verify.
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/http/client.h"
#include "services/skeinctl/cluster/formation_verify.h"

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAnswerMax = std::chrono::seconds(5);

// What is watched, and where its members tell their numbers.
struct Watch {
  FormationChecks checks;
  WatchedGroup group;
  std::vector<std::string> admin;  // by rank
};

// As it registered; of an unknown instance all is empty.
const v1::RegisterRequest& RegistrationOf(const v1::StatusResponse& status, uint64_t instance) {
  for (const v1::InstanceStatus& one : status.instances()) {
    if (one.instance() == instance) return one.registration();
  }
  return v1::RegisterRequest::default_instance();
}

// Reads the members into `numbers`, and the lead once more into `lead`.
void ReadAll(Watch* watch, MemberNumbers WatchedMember::*numbers, MemberNumbers* lead) {
  std::vector<WatchedMember>& members = watch->group.members;
  const auto read = [&](size_t rank, MemberNumbers* out) {
    auto found = ReadMember(watch->admin[rank]);
    members[rank].read.Update(found.status());
    if (found.ok()) *out = *std::move(found);
  };
  for (size_t rank = 0; rank < members.size(); ++rank) read(rank, &(members[rank].*numbers));
  read(0, lead);
}

std::vector<Watch> WatchesOf(const std::vector<v1::GroupStatus>& groups,
                             const v1::StatusResponse& status,
                             const std::map<uint64_t, std::string>& names) {
  std::vector<Watch> watches;
  for (const v1::GroupStatus& group : groups) {
    for (const v1::GroupStatus::Formation& formation : group.formations()) {
      const bool bound = absl::StartsWith(formation.name(), "bound");
      if (!bound || formation.stage() != "stands") continue;
      Watch watch;
      watch.checks = {.group = group.name(),
                      .formation = formation.name(),
                      .epoch = formation.epoch(),
                      .members = {formation.members().begin(), formation.members().end()},
                      .checks = {}};
      for (const uint64_t member : formation.members()) {
        const auto name = names.find(member);
        watch.group.members.push_back(
            {.instance = member,
             .name = name == names.end() ? absl::StrCat(member) : name->second});
        const v1::RegisterRequest& registration = RegistrationOf(status, member);
        watch.admin.push_back(registration.admin_endpoint());
        watch.group.kv_heads = static_cast<int>(registration.kv().kv_heads());
      }
      watches.push_back(std::move(watch));
    }
  }
  return watches;
}

}  // namespace

absl::StatusOr<MemberNumbers> ReadMember(const std::string& admin) {
  const auto address = http::ParseAddress(admin);
  if (!address.ok()) return absl::NotFoundError("its admin port is unknown");
  const auto response = http::Ask(*address, {"GET", "/metrics", {}}, kAnswerMax);
  if (!response.ok()) return response.status();
  if (response->status != 200) {
    return absl::UnavailableError(absl::StrCat(admin, " answers ", response->status));
  }
  return MemberNumbersFrom(response->body);
}

std::vector<FormationChecks> Verify(const std::vector<v1::GroupStatus>& groups,
                                    const v1::StatusResponse& status,
                                    const std::map<uint64_t, std::string>& names, double watch_s) {
  std::vector<Watch> watches = WatchesOf(groups, status, names);
  const Clock::time_point begin = Clock::now();
  for (Watch& watch : watches) ReadAll(&watch, &WatchedMember::first, &watch.group.lead_first);
  if (!watches.empty()) std::this_thread::sleep_for(std::chrono::duration<double>(watch_s));
  std::vector<FormationChecks> all;
  for (Watch& watch : watches) {
    ReadAll(&watch, &WatchedMember::last, &watch.group.lead_last);
    watch.group.watched_s = std::chrono::duration<double>(Clock::now() - begin).count();
    watch.checks.checks = CheckGroup(watch.group);
    all.push_back(std::move(watch.checks));
  }
  return all;
}

}  // namespace skein::services
