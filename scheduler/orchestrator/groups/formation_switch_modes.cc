// How FormationSwitch changes the mode of members that share their weights: a turn.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/orchestrator/groups/formation_switch.h"

namespace skein::scheduler::orchestrator {

namespace {

using Turn = FormationSwitch::Turn;

// "instances 3, 5": those that have not answered.
std::string Silent(const FormationSwitch::Live& live) {
  std::vector<uint64_t> ids;
  for (size_t rank = 0; rank < live.members.size(); ++rank) {
    if (!live.turn->answered[rank]) ids.push_back(live.members[rank].value);
  }
  return absl::StrCat(ids.size() == 1 ? "instance " : "instances ", absl::StrJoin(ids, ", "));
}

}  // namespace

absl::Status FormationSwitch::SetMode(uint64_t epoch, SharedMode mode, std::string why, TimeUs now,
                                      SwitchEffects* effects) {
  const LiveIt it = live_.find(epoch);
  if (it == live_.end() || it->second.stage != Stage::kBound || !it->second.mode) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", epoch, " is no formation that stands and shares its weights"));
  }
  Live& live = it->second;
  if (live.turn || *live.mode == mode) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", epoch, live.turn ? " changes to " : " works in ",
                     ToString(live.turn ? live.turn->to : mode), " already"));
  }
  live.turn = Turn{.number = ++live.turns,
                   .to = mode,
                   .setting = false,
                   .answered = {},
                   .began_us = now,
                   .why = std::move(why)};
  AskAll(it, now + limits_.ready_us, effects);
  return absl::OkStatus();
}

void FormationSwitch::Take(InstanceId instance, const ModeTold& told, TimeUs now,
                           SwitchEffects* effects) {
  const LiveIt it = live_.find(told.epoch);
  if (it == live_.end() || !it->second.turn) return;
  Live& live = it->second;
  Turn& turn = *live.turn;
  const std::optional<size_t> rank = live.RankOf(instance);
  if (!rank || told.turn != turn.number) return;
  const auto awaited = turn.setting ? ModeTold::Phase::kSet : ModeTold::Phase::kReady;
  if (told.phase == ModeTold::Phase::kRefused && !turn.setting) {
    return DropTurn(it, absl::StrCat("instance ", instance.value, ": ", told.why.message()), now,
                    effects);
  }
  if (told.phase != awaited) return;  // of a repeated order
  turn.answered[*rank] = true;
  if (std::find(turn.answered.begin(), turn.answered.end(), false) != turn.answered.end()) return;
  if (turn.setting) return EndTurn(it, SwitchOutcome::kDone, "", now, effects);
  turn.setting = true;
  AskAll(it, now + limits_.set_us, effects);
}

void FormationSwitch::AskAll(LiveIt it, TimeUs due_us, SwitchEffects* effects) {
  Live& live = it->second;
  live.due_us = due_us;
  live.turn->answered.assign(live.members.size(), false);
  for (size_t rank = 0; rank < live.members.size(); ++rank) SendTurn(it, rank, effects);
}

void FormationSwitch::SendTurn(LiveIt it, size_t rank, SwitchEffects* effects) const {
  const Turn& turn = *it->second.turn;
  effects->push_back(
      SendMode{it->second.members[rank],
               {.epoch = it->first,
                .turn = turn.number,
                .mode = turn.to,
                .act = turn.setting ? OrderMode::Act::kSet : OrderMode::Act::kReady}});
}

// The mode stays as it is. REQUIRES: none was told to change.
void FormationSwitch::DropTurn(LiveIt it, std::string reason, TimeUs now, SwitchEffects* effects) {
  const Turn& turn = *it->second.turn;
  for (const InstanceId member : it->second.members) {
    effects->push_back(SendMode{
        member,
        {.epoch = it->first, .turn = turn.number, .mode = turn.to, .act = OrderMode::Act::kDrop}});
  }
  EndTurn(it, SwitchOutcome::kAborted, std::move(reason), now, effects);
}

void FormationSwitch::EndTurn(LiveIt it, SwitchOutcome outcome, std::string reason, TimeUs now,
                              SwitchEffects* effects) {
  Live& live = it->second;
  const Turn turn = *std::exchange(live.turn, std::nullopt);
  live.due_us = kNever;  // the caller may go on to another stage
  effects->push_back(ModeChanged{.epoch = it->first,
                                 .members = live.members,
                                 .from = *live.mode,
                                 .to = turn.to,
                                 .outcome = outcome,
                                 .took_us = std::max<TimeUs>(0, now - turn.began_us),
                                 .why = turn.why,
                                 .reason = std::move(reason)});
  if (outcome == SwitchOutcome::kDone) live.mode = turn.to;
}

void FormationSwitch::ExpireTurn(LiveIt it, TimeUs now, SwitchEffects* effects) {
  Live& live = it->second;
  if (!live.turn) return;
  const bool setting = live.turn->setting;
  std::string reason =
      absl::StrCat(Silent(live), setting ? " did not change to " : " was not ready for ",
                   ToString(live.turn->to), " within ",
                   (setting ? limits_.set_us : limits_.ready_us) / kMillisecondUs, " ms");
  if (setting) return Fail(it, std::move(reason), now, effects);
  DropTurn(it, std::move(reason), now, effects);
}

}  // namespace skein::scheduler::orchestrator
