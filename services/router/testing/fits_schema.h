// Whether JSON is what a schema of the API's description says.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "nlohmann/json.hpp"

namespace skein::services::testing {

// Whether `value` is of `schema`, and has no member that the schema does not have. `schemas`: those
// that it may refer to. `where` names the value in a failure.
inline void ExpectFits(const nlohmann::ordered_json& value, nlohmann::ordered_json schema,
                       const nlohmann::ordered_json& schemas, const std::string& where) {
  using Json = nlohmann::ordered_json;
  if (schema.contains("$ref")) {
    const std::string ref = schema["$ref"];
    schema = schemas.at(ref.substr(ref.rfind('/') + 1));
  }
  if (schema.contains("anyOf")) {
    if (!value.is_null()) ExpectFits(value, schema["anyOf"][0], schemas, where);
    return;
  }
  if (!schema.contains("type")) return;
  std::set<std::string> types;
  for (const Json& type :
       schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]})) {
    types.insert(type);
  }
  std::string type(value.type_name());
  if (type == "number")
    type = value.is_number_integer() && types.count("integer") ? "integer" : type;
  EXPECT_TRUE(types.count(type)) << where << ": " << value << " is not " << schema["type"];
  if (value.is_array() && schema.contains("items")) {
    for (const Json& item : value) ExpectFits(item, schema["items"], schemas, where + "[]");
  }
  if (!value.is_object() || !schema.contains("properties")) return;
  for (const auto& [name, member] : value.items()) {
    ASSERT_TRUE(schema["properties"].contains(name)) << where << "." << name;
    ExpectFits(member, schema["properties"][name], schemas, where + "." + name);
  }
  for (const Json& name : schema["required"]) {
    EXPECT_TRUE(value.contains(name.get<std::string>())) << where << "." << name;
  }
}

}  // namespace skein::services::testing
