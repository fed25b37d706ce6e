// The console's state is one JSON object, and what changes in it travels as a JSON Merge Patch
// (RFC 7396): the page applies it to what it has. Pure.
//
// The state has no null, because in a patch null means "gone". Arrays are replaced whole.
#pragma once

#include "nlohmann/json.hpp"

namespace skein::services {

// What turns `before` into `after`; an empty object if nothing does. Both are objects without null.
nlohmann::json MergePatchOf(const nlohmann::json& before, const nlohmann::json& after);

// Members whose name ends in "_at_ms" are moments that were computed from an age ("12 s ago"), so
// they move by some milliseconds from look to look. Those of `after` that are within a second of
// `before`'s become the same, so that they are in no patch.
void KeepMoments(const nlohmann::json& before, nlohmann::json* after);

}  // namespace skein::services
