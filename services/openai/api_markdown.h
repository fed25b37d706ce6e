// The API's description as the tables of docs/api.md.
#pragma once

#include <string>
#include <string_view>

namespace skein::services::openai {

// The lines that enclose the tables in docs/api.md.
inline constexpr std::string_view kTablesBegin =
    "<!-- tables: bazel run //services/openai:api_docs -->";
inline constexpr std::string_view kTablesEnd = "<!-- end of tables -->";

std::string ApiTables();

// `page` with current tables between the two lines; "" if it lacks one of them.
std::string WithTables(std::string_view page);

}  // namespace skein::services::openai
