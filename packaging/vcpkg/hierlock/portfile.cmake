# An overlay port: it builds the checkout that it lies in.
#
#     vcpkg install hierlock --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

foreach(store mysql valkey)
  string(TOUPPER ${store} option)
  if(store IN_LIST FEATURES)
    list(APPEND stores -DHIERLOCK_${option}=ON)
  else()
    list(APPEND stores -DHIERLOCK_${option}=OFF)
  endif()
endforeach()

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${stores} -DHIERLOCK_BUILD_CLI=OFF -DHIERLOCK_LAB=OFF -DHIERLOCK_ROWS_SOCI=OFF -DHIERLOCK_BUILD_TESTS=OFF
    -DHIERLOCK_BUILD_BENCH=OFF -DHIERLOCK_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/hierlock)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
