#include "scheduler/orchestrator/groups/long_requests.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/requests/violated.h"

namespace skein::scheduler::orchestrator {

namespace {

int64_t TokensOf(const RequestHead& spec) { return PromptTokens(spec) + spec.max_tokens; }

}  // namespace

LongRequests::Place LongRequests::PlaceOf(const Request& request) {
  return {-int64_t{request.spec->priority}, request.number};
}

bool LongRequests::IsLong(const RequestHead& spec) const {
  const int64_t largest = parts_.registry->LargestSequence(spec.model);
  return largest > 0 && TokensOf(spec) > largest;
}

// ---- limits ----

std::string LongRequests::LimitsOf(const RequestHead& spec, TimeUs now) const {
  std::string text = absl::StrCat("prompt + max_tokens: ", TokensOf(spec),
                                  " tokens fit no decode instance; the largest takes ",
                                  parts_.registry->LargestSequence(spec.model));
  const WidestGroups::Widest widest = widest_.Of(spec.model, now);
  if (widest.size > 1) {
    absl::StrAppend(&text, ", their widest group, ", FormationName(widest.size), ", takes ",
                    widest.tokens);
  }
  return text;
}

absl::Status LongRequests::MaySubmit(const RequestHead& spec, bool accepted, TimeUs now) const {
  const int64_t tokens = TokensOf(spec);
  if (!accepted && tokens > widest_.Of(spec.model, now).tokens) {
    return absl::InvalidArgumentError(LimitsOf(spec, now));
  }
  const char* what = spec.want_prompt_logprobs ? "logprobs of its prompt"
                     : spec.max_tokens == 0    ? "a prompt without output"
                                               : nullptr;
  if (what != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(LimitsOf(spec, now), "; a group does not compute ", what));
  }
  std::optional<Key> group;
  const absl::Status can = CanGroup(spec.model, tokens, /*refused=*/{}, now, &group);
  if (can.ok() || absl::IsUnavailable(can)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(LimitsOf(spec, now), "; none can be bound: ", std::string(can.message())));
}

// OK: a group of the model holds so many tokens, or can be bound to. UNAVAILABLE: none can now.
// Else none can as long as operators and instances leave all as it is. `best`: that group, or the
// one for which this may pass; of equals, that with the fewest long requests.
absl::Status LongRequests::CanGroup(const std::string& model, int64_t tokens,
                                    const std::set<uint64_t>& refused, TimeUs now,
                                    std::optional<Key>* best) const {
  absl::Status found = absl::UnavailableError("there is no group");
  const auto rank = [](const absl::Status& status) {
    return status.ok() ? 0 : absl::IsUnavailable(status) ? 1 : 2;
  };
  size_t fewest = 0;
  bool any = false;
  parts_.groups->ForEachDecodeGroup(model, [&](const Key& key, const GroupControl::Group&) {
    absl::Status can = parts_.formations->CanHold(key, tokens, refused, now);
    const size_t others = parts_.needs->LongOf(key);
    const bool better = !any || rank(can) < rank(found) ||
                        (rank(can) == rank(found) && rank(can) < 2 && others < fewest);
    if (!better) return;
    any = true;
    fewest = others;
    if (rank(can) < 2) *best = key;
    found = std::move(can);
  });
  return found;
}

// ---- life ----

void LongRequests::Plan(Request& request) {
  request.in_group = true;
  request.sequence_parallel = false;
  request.unsure = false;
  parts_.requests->Enter(request, State::kGrouping);
  entries_[request.spec->id] = {.tokens = TokensOf(*request.spec)};
  Line& line = waiting_[request.spec->model];
  line.places[PlaceOf(request)] = request.spec->id;
  line.lengths.insert(TokensOf(*request.spec));
  line.fresh.insert(request.spec->id);
  if (line.places.size() == 1) due_.Set(request.spec->model, line.check_us);
  parts_.needs->NoteChange(request.spec->model);
}

void LongRequests::Forget(const Request& request) {
  const auto it = entries_.find(request.spec->id);
  if (it == entries_.end()) return;
  CountAt(&it->second, std::nullopt);
  LeaveLine(request, it->second.tokens);
  entries_.erase(it);
}

// Ignored if it does not wait.
void LongRequests::LeaveLine(const Request& request, int64_t tokens) {
  const auto it = waiting_.find(request.spec->model);
  if (it == waiting_.end() || it->second.places.erase(PlaceOf(request)) == 0) return;
  Line& line = it->second;
  line.lengths.erase(line.lengths.find(tokens));
  line.fresh.erase(request.spec->id);
  if (!line.places.empty()) return;
  due_.Remove(it->first);
  waiting_.erase(it);
}

void LongRequests::CountAt(Entry* entry, const std::optional<Key>& group, uint64_t epoch) {
  if (entry->group == group && entry->epoch == epoch) return;
  if (entry->group.has_value()) {
    parts_.needs->Leave(*entry->group, {.epoch = entry->epoch, .tokens = entry->tokens});
  }
  if (group.has_value()) parts_.needs->Join(*group, {.epoch = epoch, .tokens = entry->tokens});
  entry->group = group;
  entry->epoch = epoch;
}

void LongRequests::PlaceWaiting(TimeUs now) {
  std::set<std::string> models = parts_.needs->TakeChanged();
  while (const std::optional<std::string> due = due_.TakeDue(now)) models.insert(*due);
  for (const std::string& model : models) {
    const bool changed = widest_.Note(model, now);
    const auto line = waiting_.find(model);
    if (line == waiting_.end()) continue;
    changed || line->second.check_us <= now ? Check(model, now) : PlaceAtLeads(model, now);
  }
}

void LongRequests::Check(const std::string& model, TimeUs now) {
  Line& line = waiting_.at(model);
  line.check_us = now + kCheckUs;
  line.fresh.clear();
  due_.Set(model, line.check_us);
  std::vector<RequestId> ids;
  for (const auto& [place, id] : line.places) ids.push_back(id);
  SKEIN_LOOKED(ids.size());
  Claims claims;
  for (const RequestId id : ids) {
    if (Request* request = parts_.requests->Find(id)) TryPlace(*request, claims, now);
    AddClaim(id, now, &claims);
  }
}

// In turn, without a check, but for those that are new.
void LongRequests::PlaceAtLeads(const std::string& model, TimeUs now) {
  Line& line = waiting_.at(model);
  const std::set<RequestId> fresh = std::exchange(line.fresh, {});
  int64_t none = std::numeric_limits<int64_t>::max();  // no lead takes so many tokens
  Claims claims;
  for (auto it = line.places.begin(); it != line.places.end() && none > *line.lengths.begin();) {
    SKEIN_LOOKED(1);
    Request& request = parts_.requests->At((it++)->second);
    const int64_t tokens = entries_.at(request.spec->id).tokens;
    Instance* lead = tokens < none ? LeadFor(request, tokens, claims) : nullptr;
    if (lead != nullptr) {
      const bool last = line.places.size() == 1;  // the line goes with it
      Announce(request, lead, now);
      if (last) return;
      continue;
    }
    if (request.old_formations.empty()) none = std::min(none, tokens);
    AddClaim(request.spec->id, now, &claims);
  }
  for (const RequestId id : fresh) {
    Request* request = parts_.requests->Find(id);
    if (request != nullptr && request->decode == InstanceId{}) SeekGroup(*request, now);
  }
}

void LongRequests::TryPlace(Request& request, const Claims& claims, TimeUs now) {
  const RequestHead& spec = *request.spec;
  if (parts_.registry->LargestSequence(spec.model) == 0) {
    return parts_.ends->Fail(
        request, absl::UnavailableError(absl::StrCat("No decode instance of model '", spec.model,
                                                     "' is available. Retry.")));
  }
  if (!IsLong(spec)) {  // a larger instance has come
    Forget(request);
    request.in_group = false;
    return parts_.prefill->Plan(request, now);
  }
  Instance* lead = LeadFor(request, entries_.at(spec.id).tokens, claims);
  if (lead != nullptr) return Announce(request, lead, now);
  SeekGroup(request, now);
}

// Another group that can hold it, with fewer long requests than `own` has beside it: the one with
// the fewest.
std::optional<LongRequests::Key> LongRequests::EmptierThan(const Key& own, const Request& request,
                                                           TimeUs now) const {
  const int64_t tokens = entries_.at(request.spec->id).tokens;
  size_t fewest = parts_.needs->LongOf(own) - 1;
  std::optional<Key> best;
  parts_.groups->ForEachDecodeGroup(
      request.spec->model, [&](const Key& key, const GroupControl::Group& group) {
        if (key == own || group.members.size() < 2) return;
        const size_t others = parts_.needs->LongOf(key);
        if (others >= fewest) return;
        if (!parts_.formations->CanHold(key, tokens, request.old_formations, now).ok()) return;
        fewest = others;
        best = key;
      });
  return best;
}

// No lead takes it: counts it at the group that is to be bound for it, or fails it.
void LongRequests::SeekGroup(Request& request, TimeUs now) {
  const RequestHead& spec = *request.spec;
  Entry& entry = entries_.at(spec.id);
  const std::set<uint64_t>& refused = request.old_formations;
  if (entry.group.has_value() &&
      parts_.formations->CanHold(*entry.group, entry.tokens, refused, now).ok()) {
    entry.stuck_us = kNever;
    if (const auto other = EmptierThan(*entry.group, request, now)) CountAt(&entry, other);
    return;
  }
  CountAt(&entry, std::nullopt);
  std::optional<Key> group;
  const absl::Status can = CanGroup(spec.model, entry.tokens, refused, now, &group);
  CountAt(&entry, group);
  if (can.ok()) {
    entry.stuck_us = kNever;
    return;
  }
  entry.stuck_us = std::min(entry.stuck_us, now);
  const bool passes = absl::IsUnavailable(can);
  if (passes && now < entry.stuck_us + wait_us_) return;
  const std::string why =
      absl::StrCat(LimitsOf(spec, now), "; none can be bound: ", std::string(can.message()));
  parts_.ends->Fail(request,
                    passes ? absl::UnavailableError(why) : absl::InvalidArgumentError(why));
}

// The request waits, and those that are looked at next come after it. Of those that wait at one
// group the policy serves the longest that it can, so a shorter one behind a longer one claims
// nothing, nor does one that the group cannot be bound for now.
void LongRequests::AddClaim(RequestId id, TimeUs now, Claims* claims) const {
  const auto entry = entries_.find(id);
  if (entry == entries_.end() || !entry->second.group || entry->second.epoch != 0) return;
  const auto& [tokens, group, epoch, stuck_us] = entry->second;
  std::vector<Claim>& of_group = (*claims)[*group];
  if (!of_group.empty() && of_group.back().tokens >= tokens) return;
  std::vector<InstanceId> awaited = parts_.formations->AwaitedFor(*group, tokens, now);
  if (!awaited.empty()) of_group.push_back({tokens, std::move(awaited)});
}

bool LongRequests::IsClaimed(const Key& group, const Instance& lead, const Claims& claims) const {
  const auto of_group = claims.find(group);
  const FormationSwitch::Live* live = parts_.formations->LiveOf(lead.id);
  if (of_group == claims.end() || live == nullptr) return false;
  const int64_t holds = Formations::TokensMax(lead.identity, lead.formation_size);
  return std::any_of(of_group->second.begin(), of_group->second.end(), [&](const Claim& claim) {
    return claim.tokens > holds &&
           std::find_first_of(claim.instances.begin(), claim.instances.end(), live->members.begin(),
                              live->members.end()) != claim.instances.end();
  });
}

// Of those that lead a group which holds so many tokens and takes new requests: one that the
// request was not at before, then the one with the fewest requests. Null: there is none.
Instance* LongRequests::LeadFor(const Request& request, int64_t tokens,
                                const Claims& claims) const {
  const auto rank = [&](const Instance& one) {
    const bool left = request.old_decodes.contains(one.id) || request.lost_decodes.contains(one.id);
    return std::pair(left, one.placed.size());
  };
  Instance* best = nullptr;
  parts_.groups->ForEachDecodeGroup(
      request.spec->model, [&](const Key& key, const GroupControl::Group& group) {
        for (const InstanceId id : group.members) {
          Instance* one = parts_.registry->Find(id);
          const bool leads = one->leads_formation != 0 && one->Placeable() && one->HasRoom() &&
                             !request.old_formations.contains(one->leads_formation);
          const bool takes = leads &&
                             Formations::TokensMax(one->identity, one->formation_size) >= tokens &&
                             !IsClaimed(key, *one, claims);
          if (takes && (best == nullptr || rank(*one) < rank(*best))) best = one;
        }
      });
  return best;
}

void LongRequests::Announce(Request& request, Instance* lead, TimeUs now) {
  Entry& entry = entries_.at(request.spec->id);
  LeaveLine(request, entry.tokens);
  CountAt(&entry, *parts_.groups->KeyOf(lead->id), lead->leads_formation);
  request.epoch = parts_.numbers->NextEpoch();
  request.decode = lead->id;
  request.formation = lead->leads_formation;
  request.formation_size = lead->formation_size;
  lead->Place(request.spec, request.epoch, /*announced_only=*/true);
  const TimeUs decided_us = now - request.submitted_us;
  constexpr size_t kMostPlans = 16;  // that are told of one request: the first, and the latest
  auto& plans = request.explanation.plans;
  if (plans.size() == kMostPlans) plans.erase(plans.begin() + 1);
  plans.push_back(
      {.epoch = request.epoch,
       .decided_us = decided_us,
       .how = absl::StrCat("computed by ", FormationName(request.formation_size), ", led by ",
                           "instance ", lead->id.value, ": ", TokensOf(*request.spec),
                           " tokens fit no instance alone; the largest takes ",
                           parts_.registry->LargestSequence(request.spec->model))});
  parts_.sender->Announce(request);
  parts_.effects->push_back(
      SendPlanUpdate{request.spec->id, PlannedOf(request, *parts_.registry, decided_us)});
}

// ---- what is shown and checked ----

int64_t LongRequests::WaitingOf(const std::string& model) const {
  const auto line = waiting_.find(model);
  return line == waiting_.end() ? 0 : static_cast<int64_t>(line->second.places.size());
}

TimeUs LongRequests::OldestWait(TimeUs now) const {
  TimeUs oldest_us = 0;
  for (const auto& [model, line] : waiting_) {
    for (const auto& [place, id] : line.places) {
      oldest_us = std::max(oldest_us, now - parts_.requests->At(id).submitted_us);
    }
  }
  return oldest_us;
}

absl::Status LongRequests::CheckInvariants() const {
  absl::Status found;
  size_t known = 0, waiting = 0;
  std::map<Key, std::multiset<GroupNeeds::Need>> counted;
  parts_.requests->ForEach([&](const Request& request) {
    const RequestId id = request.spec->id;
    if (!found.ok()) return;
    const auto entry = entries_.find(id);
    if (request.in_group != (entry != entries_.end())) {
      found = Violated(12, id, "is in a group in one table but not in the other");
    }
    if (!found.ok() || !request.in_group) return;
    ++known;
    const auto line = waiting_.find(request.spec->model);
    const bool waits = line != waiting_.end() && line->second.places.contains(PlaceOf(request));
    if (waits != (request.decode == InstanceId{})) {
      found = Violated(12, id, "waits for a group and is at one, or neither");
    } else if (request.state != State::kGrouping && (waits || request.state != State::kPlaced)) {
      found = Violated(12, id, "is in a group, in a state that has none");
    }
    waiting += waits ? 1 : 0;
    const auto& [tokens, group, epoch, stuck_us] = entry->second;
    if (epoch != (waits ? 0 : request.formation)) {
      found = Violated(12, id, "is counted at another formation than the one that runs it");
    }
    if (group.has_value()) counted[*group].insert({.epoch = epoch, .tokens = tokens});
  });
  if (!found.ok()) return found;
  for (const auto& [model, line] : waiting_) {
    waiting -= line.places.size();
    if (line.lengths.size() != line.places.size() || due_.Of(model) != line.check_us) {
      return absl::InternalError("OrchestratorCore 12: a line of long requests is out of date");
    }
  }
  if (known != entries_.size() || waiting != 0) {
    return absl::InternalError("OrchestratorCore 12: a long request that has ended is listed");
  }
  if (counted == parts_.needs->all()) return absl::OkStatus();
  return absl::InternalError("OrchestratorCore 12: long requests are miscounted by group");
}

}  // namespace skein::scheduler::orchestrator
