// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bellows {

/// `NAME == LITERAL` or `NAME.FIELD ~= LITERAL` in a script, or the other way round. Lua takes no
/// comparison of unlike things for an error: it is always false, without any message.
struct LuaComparison {
  enum class Literal { text, number, flag };

  int function;       ///< the line on which the function around it begins; 0: none is around it
  int line;           ///< of the operator
  std::string name;   ///< of a variable
  std::string field;  ///< empty: of the variable itself
  Literal with;
};

/// Those that stand by themselves, not inside a larger expression, and of which it is clear in
/// which function they are. In a text that is not Lua it finds some or none.
std::vector<LuaComparison> comparisons_in(std::string_view source);

}  // namespace bellows
