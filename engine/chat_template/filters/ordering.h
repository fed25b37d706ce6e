// sort, min, max, unique, dictsort, groupby: filters that compare by a key.
#pragma once

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

Value SortFilter(Runtime& runtime, const Value& input, const Arguments& arguments);
Value DictSortFilter(Runtime& runtime, const Value& input, const Arguments& arguments);
Value UniqueFilter(Runtime& runtime, const Value& input, const Arguments& arguments);
Value MinFilter(Runtime& runtime, const Value& input, const Arguments& arguments);
Value MaxFilter(Runtime& runtime, const Value& input, const Arguments& arguments);
Value GroupByFilter(Runtime& runtime, const Value& input, const Arguments& arguments);

}  // namespace skein::engine::chat_template
