#include "scheduler/router/heard_instances.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void HeardInstances::SetLease(size_t cell, TimeUs lease_us) {
  cells_[cell].silence_us = SilenceOf(lease_us);
  TimeUs shortest_us = kNever;
  for (const auto& [known, one] : cells_) shortest_us = std::min(shortest_us, one.silence_us);
  listening_.SetLease(shortest_us);
}

// Two cells rarely share an endpoint: then the shorter one of theirs.
TimeUs HeardInstances::SilenceOf(const Endpoint& endpoint) const {
  TimeUs silence_us = kNever;
  for (const DecodePlace& place : endpoint.places) {
    silence_us = std::min(silence_us, cells_.at(place.cell).silence_us);
  }
  return silence_us;
}

void HeardInstances::Attach(const DecodePlace& place, const std::string& endpoint) {
  Place& at = places_[place];
  if (at.requests++ > 0) return;
  at.endpoint = endpoint;
  Endpoint& from = endpoints_[endpoint];
  from.places.insert(place);
  if (cells_.try_emplace(place.cell).second) SetLease(place.cell, kLeaseUs);
  if (from.heard) NoteChange(place);
}

void HeardInstances::Detach(const DecodePlace& place) {
  const auto at = places_.find(place);
  if (at == places_.end() || --at->second.requests > 0) return;
  const auto from = endpoints_.find(at->second.endpoint);
  if (from->second.heard) NoteChange(place);
  from->second.places.erase(place);
  if (from->second.places.empty()) {
    silent_at_.Remove(from->first);
    endpoints_.erase(from);
  }
  places_.erase(at);
}

// The timer is set again when an eighth of the silence has passed: many messages come.
void HeardInstances::Received(const std::string& endpoint, TimeUs now) {
  const auto it = endpoints_.find(endpoint);
  if (it == endpoints_.end()) return;
  Endpoint& from = it->second;
  const TimeUs silence_us = SilenceOf(from);
  const TimeUs silent_us = listening_.At(now) + silence_us;
  const TimeUs later_us = silent_us - from.silent_us;
  if (from.heard && later_us >= 0 && later_us < silence_us / 8) return;
  from.silent_us = silent_us;
  silent_at_.Set(endpoint, silent_us);
  SetHeard(from, true);
}

void HeardInstances::Broken(const std::string& endpoint) {
  const auto it = endpoints_.find(endpoint);
  if (it == endpoints_.end()) return;
  silent_at_.Remove(endpoint);
  SetHeard(it->second, false);
}

void HeardInstances::Tick(TimeUs now) {
  if (silent_at_.size() == 0) return;
  listening_.Listened(now);
  while (const auto endpoint = silent_at_.TakeDue(listening_.elapsed())) {
    SetHeard(endpoints_.at(*endpoint), false);
  }
}

void HeardInstances::SetHeard(Endpoint& endpoint, bool heard) {
  if (std::exchange(endpoint.heard, heard) == heard) return;
  for (const DecodePlace& place : endpoint.places) NoteChange(place);
}

bool HeardInstances::IsHeard(const DecodePlace& place) const {
  const auto at = places_.find(place);
  return at != places_.end() && endpoints_.at(at->second.endpoint).heard;
}

HeardInstances::Told HeardInstances::TellAll(size_t cell) {
  Told told;
  Cell& to = cells_[cell];
  to.told.clear();
  to.changed.clear();
  for (auto it = places_.lower_bound({cell, {}}); it != places_.end() && it->first.cell == cell;
       ++it) {
    const Incarnation instance = it->first.instance;
    if (IsHeard(it->first)) {
      told.heard.push_back(instance);
      to.told.insert(instance);
    } else {
      told.not_heard.push_back(instance);
    }
  }
  return told;
}

HeardInstances::Told HeardInstances::TellChanges(size_t cell) {
  Told told;
  Cell& to = cells_[cell];
  for (const Incarnation instance : std::exchange(to.changed, {})) {
    if (IsHeard({cell, instance})) {
      if (to.told.insert(instance).second) told.heard.push_back(instance);
    } else if (to.told.erase(instance) > 0) {
      told.not_heard.push_back(instance);
    }
  }
  return told;
}

absl::Status HeardInstances::CheckInvariants() const {
  const auto violated = [](const std::string& what) {
    return absl::InternalError(absl::StrCat("HeardInstances: ", what));
  };
  size_t places = 0;
  for (const auto& [name, endpoint] : endpoints_) {
    places += endpoint.places.size();
    if (endpoint.places.empty()) return violated(absl::StrCat(name, " was kept without requests"));
    const TimeUs silent_us = endpoint.heard ? endpoint.silent_us : kNever;
    if (silent_at_.Of(name) != silent_us) {
      return violated(absl::StrCat(
          name, endpoint.heard ? " is heard without a time limit" : " is silent but has a timer"));
    }
    for (const DecodePlace& place : endpoint.places) {
      const auto at = places_.find(place);
      if (at == places_.end() || at->second.endpoint != name || at->second.requests < 1) {
        return violated(
            absl::StrCat("instance ", place.instance.value, " is not listed at ", name));
      }
      const auto cell = cells_.find(place.cell);
      const bool told = cell != cells_.end() && cell->second.told.count(place.instance) > 0;
      const bool changed = cell != cells_.end() && cell->second.changed.count(place.instance) > 0;
      if (told != endpoint.heard && !changed) {
        return violated(
            absl::StrCat("instance ", place.instance.value, " was reported in another state"));
      }
    }
  }
  if (places != places_.size()) return violated("a place belongs to no endpoint");
  return absl::OkStatus();
}

}  // namespace skein::scheduler
