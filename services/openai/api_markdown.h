// The API's description for people: the tables of docs/api.md.
#pragma once

#include <string>
#include <string_view>

namespace skein::services::openai {

// The lines between which docs/api.md has the tables.
inline constexpr std::string_view kTablesBegin =
    "<!-- tables: bazel run //services/openai:api_docs -->";
inline constexpr std::string_view kTablesEnd = "<!-- end of tables -->";

std::string ApiTables();

// `page` with the tables of now between the two lines; "" when it does not have both.
std::string WithTables(std::string_view page);

}  // namespace skein::services::openai
